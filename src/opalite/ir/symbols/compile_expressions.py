"""Compiler from texts of symbolic expressions to one Python function: guards first, then all numbers.

Texts may come from a file. They are parsed, and only arithmetic is accepted: names of symbols, numbers, operators,
comparisons and FUNCTIONS. Common subexpressions are computed once.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from .maybe_symbolic import FUNCTIONS

Numbers = Callable[..., "tuple[Any, ...] | None"]

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARED: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_MOST_POWER = 64
_MOST_NESTED = 40
"""Nested operations in one line; Python accepts 200 parentheses."""


def compile_numbers(symbols: int, guards: Sequence[str], terms: Sequence[str]) -> Numbers:
    """A function f(s0, s1, ...) that returns the values of `terms`, or None if a guard does not hold.

    The function raises ArithmeticError or ValueError if a guard cannot be computed. ValueError for an invalid
    expression.
    """
    writer = _Writer(symbols)
    wanted_guards = [writer.read(text) for text in guards]
    wanted = [writer.read(text) for text in terms]
    for number in wanted_guards + wanted:
        writer.uses[number] += 1
    for number in wanted_guards:
        text = writer.text(number)
        writer.lines.append(f" if not {text}: return None")
    found = [writer.text(number) for number in wanted]
    names = ", ".join(f"s{i}" for i in range(symbols))
    result = "".join(f"{text}," for text in found)
    source = "\n".join([f"def numbers({names}):", *writer.lines, f" return ({result})"])
    scope: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}
    exec(compile(source, "<sizes>", "exec"), scope)
    made: Numbers = scope["numbers"]
    return made


class _Writer:
    """Expressions as a graph with common subexpressions merged, and the lines of code that compute them."""

    def __init__(self, symbols: int) -> None:
        self.lines: list[str] = []
        self.uses: list[int] = []  # by number of the expression
        self._symbols = symbols
        self._parts: list[tuple[str, tuple[int, ...]]] = []  # a format, and the expressions that go into it
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._names: dict[int, str] = {}
        self._nested: list[int] = []  # nesting depth by number of the expression
        self._known: dict[str, int] = {}

    def read(self, text: str) -> int:
        """The number of an expression; ValueError for an invalid one."""
        if text not in self._known:
            try:
                self._known[text] = self._add(ast.parse(text, mode="eval").body)
            except (SyntaxError, RecursionError, MemoryError) as e:
                raise ValueError(f"{text[:80]!r} is no expression over sizes: {e}") from None
        return self._known[text]

    def _add(self, node: ast.AST) -> int:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() as value) if math.isfinite(value):
                return self._intern(repr(value), ())
            case ast.Name(id=name) if name in (f"s{i}" for i in range(self._symbols)):
                return self._intern(name, ())
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._intern("(-{})", (self._add(operand),))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                if isinstance(op, ast.Pow) and not _is_small(right):
                    raise ValueError(f"the power of '{ast.unparse(node)[:80]}' is no number up to {_MOST_POWER}")
                return self._intern(f"({{}}{_BINARY[type(op)]}{{}})", (self._add(left), self._add(right)))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
                return self._intern(f"({{}}{_COMPARED[type(op)]}{{}})", (self._add(left), self._add(right)))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
                places = ",".join("{}" for _ in args)
                return self._intern(f"{name}({places})", tuple(self._add(a) for a in args))
        raise ValueError(f"'{ast.unparse(node)[:80]}' is no expression over sizes")

    def _intern(self, form: str, parts: tuple[int, ...]) -> int:
        key = form, parts
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._parts)
            self._parts.append(key)
            self._nested.append(0)
            self.uses.append(0)
            for part in parts:
                self.uses[part] += 1
        return number

    def text(self, number: int) -> str:
        """Code for an expression: inline, or a name assigned in an earlier line if it is used twice or nests deep."""
        if number in self._names:
            return self._names[number]
        form, parts = self._parts[number]
        text = form.format(*map(self.text, parts)) if parts else form
        nested = self._nested[number] = 1 + max((self._nested[p] for p in parts), default=0)
        if (self.uses[number] > 1 or nested > _MOST_NESTED) and parts:
            self._nested[number] = 0
            name = self._names[number] = f"t{number}"
            self.lines.append(f" {name}={text}")
            return name
        return text


def _is_small(power: ast.AST) -> bool:
    match power:
        case ast.Constant(value=int() | float() as value):
            return abs(value) <= _MOST_POWER
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_small(operand)
    return False
