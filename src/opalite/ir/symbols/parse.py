"""Parser of expressions over sizes: the inverse of `SymbolicInt.text` and `SymbolicFloat.text`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .maybe_symbolic import as_float32, symbolic_max, symbolic_min
from .symbol_trace import Trace

_MOST_POWER = 64

_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: Mapping[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": lambda *values: symbolic_min(values),
    "max": lambda *values: symbolic_max(values),
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "float32": as_float32,
}


def read_expression(text: str, trace: Trace) -> Any:
    """The number of `text`, an expression over the symbols s0, s1, ... of `trace`.

    A comparison becomes a bool and a guard of the trace. ValueError for an invalid text, ArithmeticError if it cannot
    be computed.
    """
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as e:
        raise ValueError(f"{text[:80]!r} is no expression over sizes: {e}") from None
    return _value(body, {s.text: s for s in trace.symbols})


def _value(node: ast.AST, symbols: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value) if math.isfinite(value):
            return value
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, symbols)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            power = _value(right, symbols)
            if type(power) not in (int, float) or abs(power) > _MOST_POWER:
                raise ValueError(f"the power of '{ast.unparse(node)[:80]}' is no number up to {_MOST_POWER}")
            return _value(left, symbols) ** power
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return _COMPARED[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(a, symbols) for a in args))
    raise ValueError(f"'{ast.unparse(node)[:80]}' is no expression over sizes")
