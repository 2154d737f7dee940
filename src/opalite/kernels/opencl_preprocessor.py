"""A preprocessor for OpenCL C: evaluates conditions and expands macros to read a kernel's declaration.

Evaluation is lazy: directives are indexed once per piece of text, and a macro or condition is evaluated on demand.
Names that no directive defines, such as the compiler's own, count as undefined. Supported: object-like and
function-like macros, `##`, and #if with integers. #include is expanded earlier, by kernel_sources.py.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)((?:[^\\\n]|\\\n|\\.)*)$", re.MULTILINE)
_DEFINE = re.compile(r"\s*(\w+)(?:\(([^)]*)\))?\s*(.*)", re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|##|\s+|&&|\|\||[<>=!]=|.", re.DOTALL)
_OPERATORS = {"&&": " and ", "||": " or ", "!": " not ", "/": "//"}
_SAFE = re.compile(r"[\d\s()+\-*/%<>=!&|^~]|and|or|not")

Position = tuple[int, int]
"""A place in a program: number of the piece, and offset in it."""


@dataclass(frozen=True, eq=False)
class _Branch:
    """A text range between #if, #elif, #else and #endif; `before` are the preceding alternatives."""

    outer: _Branch | None
    condition: str
    at: int
    before: tuple[_Branch, ...] = ()


@dataclass(frozen=True)
class _Macro:
    at: int
    branch: _Branch | None
    parameters: tuple[str, ...] | None  # None: object-like
    body: str | None  # None: #undef


@dataclass
class _Index:
    """The directives of a piece of text."""

    text: str
    macros: dict[str, list[_Macro]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)  # start offsets of `branches`
    branches: list[_Branch | None] = field(default_factory=list)

    def branch_at(self, at: int) -> _Branch | None:
        """The innermost branch that holds offset `at`."""
        i = bisect.bisect_right(self.starts, at) - 1
        return self.branches[i] if i >= 0 else None


@lru_cache(maxsize=1024)
def _index(text: str) -> _Index:
    found = _Index(text)
    branch: _Branch | None = None
    for m in _DIRECTIVE.finditer(text):
        kind, rest, at = m[1], _COMMENT.sub(" ", m[2]).replace("\\\n", " "), m.start()
        if kind in ("define", "undef"):
            parts = _DEFINE.fullmatch(rest)
            if parts is None:
                raise ValueError(f"the directive #{kind}{rest} cannot be read")
            name, parameters, body = parts[1], parts[2], parts[3].strip() if kind == "define" else None
            names = None if parameters is None else tuple(p.strip() for p in parameters.split(",") if p.strip())
            found.macros.setdefault(name, []).append(_Macro(at, branch, names, body))
            continue
        if kind in ("if", "ifdef", "ifndef"):
            condition = {"if": "{}", "ifdef": "defined({})", "ifndef": "!defined({})"}[kind].format(rest.strip())
            branch = _Branch(branch, condition, at)
        elif kind in ("elif", "else", "endif"):
            if branch is None:
                raise ValueError(f"#{kind} stands without #if")
            if kind == "endif":
                branch = branch.outer
            else:
                condition = rest.strip() if kind == "elif" else "1"
                branch = _Branch(branch.outer, condition, at, (*branch.before, branch))
        else:
            continue
        found.starts.append(at)
        found.branches.append(branch)
    return found


class Preprocessed:
    """A program as ordered pieces of text, with the macros `options` defined in front."""

    def __init__(self, pieces: Sequence[str], options: Mapping[str, str]) -> None:
        self._pieces = [_index(piece) for piece in pieces]
        self._options = options
        self._taken: dict[_Branch, bool] = {}

    def find(self, pattern: re.Pattern[str]) -> tuple[re.Match[str], Position] | None:
        """The first match in compiled text, and its position."""
        return next(self.find_all(pattern), None)

    def find_all(self, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], Position]]:
        """Every match in compiled text, and its position."""
        for number, piece in enumerate(self._pieces):
            for m in pattern.finditer(piece.text):
                if self._is_active(piece.branch_at(m.start()), number):
                    yield m, (number, m.start())

    def rest(self, at: Position) -> str:
        """The text of a piece from `at` on."""
        return self._pieces[at[0]].text[at[1] :]

    def head(self, at: Position) -> str:
        """The compiled text of a piece from `at` up to a brace, without comments and directives."""
        number, start = at
        piece = self._pieces[number]
        text = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), piece.text[start:]).partition("{")[0]
        end = start + len(text)
        bounds = [start, *(s for s in piece.starts if start < s < end), end]
        kept = (text[a - start : b - start] for a, b in pairwise(bounds) if self._is_active(piece.branch_at(a), number))
        return _DIRECTIVE.sub(" ", "".join(kept))

    def expand(self, text: str, at: Position, hidden: frozenset[str] = frozenset()) -> str:
        """`text`, located at `at`, with its macros expanded."""
        tokens = _TOKEN.findall(text)
        out: list[str] = []
        i = 0
        while i < len(tokens):
            token = tokens[i]
            i += 1
            macro = self._macro(token, at) if token not in hidden and (token[0].isalpha() or token[0] == "_") else None
            if macro is None or macro.body is None:
                out.append(token)
                continue
            body = macro.body
            if macro.parameters is not None:
                end, arguments = _arguments(tokens, i)
                if end == i:  # a function-like macro's name alone is no call
                    out.append(token)
                    continue
                i = end
                body = self._substitute(macro, arguments, at, hidden)
            out.append(self.expand(_join(body), at, hidden | {token}))
        return "".join(out)

    def _substitute(self, macro: _Macro, arguments: Sequence[str], at: Position, hidden: frozenset[str]) -> str:
        """Expands a function-like macro; arguments beside ## are inserted unexpanded."""
        assert macro.parameters is not None
        assert macro.body is not None
        if len(arguments) != len(macro.parameters):
            raise ValueError(f"a macro of {len(macro.parameters)} parameters is given {len(arguments)}: {macro.body}")
        given = dict(zip(macro.parameters, arguments, strict=True))
        tokens = _TOKEN.findall(macro.body)
        solid = [(i, t) for i, t in enumerate(tokens) if not t.isspace()]
        pasted = set()
        for (i, a), (j, b) in pairwise(solid):
            if "##" in (a, b):
                pasted |= {i, j}
        return "".join(
            (given[t] if i in pasted else self.expand(given[t], at, hidden)) if t in given else t
            for i, t in enumerate(tokens)
        )

    def _macro(self, name: str, at: Position) -> _Macro | None:
        """The definition of `name` at `at`, or None."""
        for number in range(at[0], -1, -1):
            for macro in reversed(self._pieces[number].macros.get(name, ())):
                if (number, macro.at) < at and self._is_active(macro.branch, number):
                    return None if macro.body is None else macro
        value = self._options.get(name)
        return None if value is None else _Macro(-1, None, None, value)

    def _is_active(self, branch: _Branch | None, number: int) -> bool:
        """Whether the text of `branch`, in piece `number`, is compiled."""
        if branch is None:
            return True
        if branch not in self._taken:
            self._taken[branch] = (
                self._is_active(branch.outer, number)
                and not any(self._is_active(b, number) for b in branch.before)
                and self._holds(branch.condition, (number, branch.at))
            )
        return self._taken[branch]

    def _holds(self, condition: str, at: Position) -> bool:
        """The value of an #if."""

        def is_defined(m: re.Match[str]) -> str:
            return "1" if self._macro(m[1] or m[2], at) is not None else "0"

        text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", is_defined, condition)
        words = []
        for token in _TOKEN.findall(self.expand(text, at)):
            if token[0].isdigit():
                token = str(int(token.rstrip("uUlL"), 0))
            elif token[0].isalpha() or token[0] == "_":
                token = "0"
            words.append(_OPERATORS.get(token, token))
        expression = "".join(words).strip()
        if _SAFE.sub("", expression):
            raise ValueError(f"the condition #if {condition} cannot be evaluated")
        try:
            return bool(evaluate(expression))
        except (SyntaxError, TypeError, ZeroDivisionError):
            raise ValueError(f"the condition #if {condition} cannot be evaluated") from None


@lru_cache(maxsize=4096)
def evaluate(expression: str) -> int:
    """Evaluates an expression of integers and operators."""
    return int(eval(expression, {"__builtins__": {}}))


def _arguments(tokens: Sequence[str], i: int) -> tuple[int, list[str]]:
    """(index after the call, arguments) if a parenthesis comes next, else (i, [])."""
    start = i
    while i < len(tokens) and tokens[i].isspace():
        i += 1
    if i == len(tokens) or tokens[i] != "(":
        return start, []
    depth, arguments = 1, [""]
    for j in range(i + 1, len(tokens)):
        token = tokens[j]
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return j + 1, [a.strip() for a in arguments]
        if token == "," and depth == 1:
            arguments.append("")
        else:
            arguments[-1] += token
    raise ValueError(f"a macro's parenthesis is not closed: {''.join(tokens[start:])}")


def _join(text: str) -> str:
    """`text` with the names beside ## joined."""
    return re.sub(r"\s*##\s*", "", text)
