"""Dim and its Trace: integers that remember how they came from symbols, and what was decided about them.

Longer than 400 lines: a number with all of its operators, which its trace makes.
"""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from .polynomial import Bounds, Monomial, Poly, add, constant, divide, multiply, split
from .real import Real

SYMBOLS_OWN = "symbols are at least 2"
"""Where the guards of symbols themselves come from."""

_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "true_divide": operator.truediv,
    "divide": operator.truediv,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
_HERE = str(Path(__file__).parent)
_TELLERS = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in ("ops", "importer"))
"""Folders in which text made of sizes is for messages only, and so takes the size at hand."""


@dataclass(frozen=True)
class Guard:
    """`text` is true of the sizes that a trace was made with, and has to be for those it is used with.

    where: the line of code that asked. fixes: it holds a size to one value. node: the model's node that was imported
    then, or "".
    """

    text: str
    where: str
    fixes: bool = False
    node: str = ""


class Trace:
    """Symbols and what was decided about them. Not thread-safe."""

    def __init__(self) -> None:
        self.symbols: list[Dim] = []
        self.names: list[str] = []
        self.node = ""  # of the model, that is imported now: guards tell it
        self._guards: dict[str, Guard] = {}
        self._texts: list[str] = []
        self._bounds: list[Bounds] = []
        self._hints: list[int] = []
        self._atoms: dict[str, int] = {}
        self._dims: dict[Poly, Dim] = {}
        self.quotients: dict[Monomial, tuple[Poly, int]] = {}  # what was divided by which number, by the atom for it
        self._recorded = 0  # guards, those dropped since included
        self._checked = -1  # of them, when `_check` was made
        self._check: Callable[..., Any]
        self._learnt: dict[Monomial, Bounds] = {}  # by guards
        self._limiting: dict[tuple[Monomial, bool], str] = {}  # the guard that each bound, lower or upper, comes from

    def symbol(self, hint: int, name: str = "") -> int:
        """A size that may be any other; 0 and 1, which broadcasting and much else treats apart, stay themselves.

        A symbol is at least 2, which is a condition of its trace. name: as the model calls it, for messages.
        """
        if hint < 2:
            return hint
        text = f"s{len(self.symbols)}"
        number = self._atom(text, hint, (2, None))
        made = self._dim((((number,), 1),))
        assert isinstance(made, Dim)
        self.symbols.append(made)
        self.names.append(name or text)
        self._guards.setdefault(f"{text} >= 2", Guard(f"{text} >= 2", SYMBOLS_OWN))
        return made

    @property
    def guards(self) -> list[Guard]:
        """What has to hold, in the order in which it was asked."""
        return list(self._guards.values())

    def guard(self, text: str, *, fixes: bool = False) -> None:
        """Record a condition. It is true now."""
        if text not in self._guards:
            self._guards[text] = Guard(text, _caller(), fixes, self.node)
            self._recorded += 1

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether every guard does for these values of the symbols: those recorded since the last time included."""
        from .values import FUNCTIONS  # which needs this module

        if self._recorded != self._checked:
            self._checked = self._recorded
            fixing_first = sorted(self._guards.values(), key=lambda g: not g.fixes)
            names = ", ".join(s.text for s in self.symbols)
            text = " and ".join(f"({g.text})" for g in fixing_first) or "True"
            self._check = eval(f"lambda {names}: {text}", {"__builtins__": {}, **FUNCTIONS})
        try:
            return bool(self._check(*sizes))
        except (ArithmeticError, ValueError):
            return False

    def _atom(self, text: str, hint: int, bounds: Bounds) -> int:
        number = self._atoms.get(text)
        if number is None:
            number = self._atoms[text] = len(self._texts)
            self._texts.append(text)
            self._hints.append(hint)
            self._bounds.append(bounds)
        return number

    def atom(self, text: str, hint: int, bounds: Bounds) -> int:
        """An integer that is opaque but for its bounds, as a Dim."""
        return self._dim((((self._atom(text, hint, bounds),), 1),))

    def _dim(self, poly: Poly) -> int:
        """The Dim of a polynomial; a plain integer for a constant."""
        if not poly:
            return 0
        if len(poly) == 1 and not poly[0][0]:
            return poly[0][1]
        found = self._dims.get(poly)
        if found is None:
            hint = sum(c * math.prod(self._hints[a] for a in m) for m, c in poly)
            found = self._dims[poly] = Dim(self, poly, hint)
        return found  # type: ignore[return-value]

    def is_one_symbol(self, poly: Poly) -> bool:
        """Whether a polynomial holds one symbol, to the first power, and else constants."""
        atoms = [m for m, _ in poly if m]
        return len(atoms) == 1 and len(atoms[0]) == 1 and self._texts[atoms[0][0]] in {s.text for s in self.symbols}

    def bounds(self, poly: Poly) -> Bounds:
        """What a polynomial is at least and at most; None where nothing is known."""
        low, high = self._sum_bounds(poly)
        if len(poly) > 1 and (low is None or high is None or any(c < 0 for _, c in poly)):
            least, most = self._product_bounds(poly)
            low = least if low is None or (least is not None and least > low) else low
            high = most if high is None or (most is not None and most < high) else high
        return low, high

    def _product_bounds(self, poly: Poly) -> Bounds:
        """The bounds of f * rest + c, f being what all monomials share: s0*s1 - s0 is s0 * (s1 - 1)."""
        fixed = sum(c for m, c in poly if not m)
        open_terms = [(m, c) for m, c in poly if m]
        shared = list(open_terms[0][0])
        for m, _ in open_terms[1:]:
            left, kept = list(m), []
            for a in shared:
                if a in left:
                    left.remove(a)
                    kept.append(a)
            shared = kept
        if not shared:
            return None, None
        rest = self._sum_bounds(tuple((_without(m, shared), c) for m, c in open_terms))
        low, high = _product(self._monomial_bounds(tuple(shared)), rest)
        return None if low is None else low + fixed, None if high is None else high + fixed

    def _sum_bounds(self, poly: Poly) -> Bounds:
        low: int | None = 0
        high: int | None = 0
        for monomial, coefficient in poly:
            least, most = self._monomial_bounds(monomial)
            if coefficient < 0:
                least, most = most, least
            low = None if low is None or least is None else low + coefficient * least
            high = None if high is None or most is None else high + coefficient * most
        return low, high

    def learn(self, poly: Poly, sign: str, text: str) -> None:
        """Take `poly (sign) 0`, a guard of that text, for what it says of the bounds of a single monomial."""
        terms = [term for term in poly if term[0]]
        if len(terms) != 1 or sign == "==":
            return
        if sign == "!=":
            self._learn_end(terms[0], sum(c for m, c in poly if not m))
            return
        ((monomial, by),) = terms
        rest = sum(c for m, c in poly if not m) + {"<": 1, ">": -1}.get(sign, 0)  # by * x + rest <= 0, or >= 0
        is_upper = sign[0] == "<"
        if by < 0:
            is_upper, by, rest = not is_upper, -by, -rest
        limit = -rest // by if is_upper else -(rest // by)
        low, high = self._monomial_bounds(monomial)
        if is_upper and (high is None or limit < high):
            self._learnt[monomial] = low, limit
            self._learn_parts(monomial, limit)
        elif not is_upper and (low is None or limit > low):
            self._learnt[monomial] = limit, high
        else:
            return
        self._forget(self._limiting.get((monomial, is_upper)))
        self._limiting[monomial, is_upper] = text

    def _learn_parts(self, monomial: Monomial, limit: int) -> None:
        """The product of some factors of what is at most `limit` is so all the more, if the others are at least 1."""
        for size in range(1, len(monomial)):
            for part in combinations(monomial, size):
                others, _ = self._monomial_bounds(_without(monomial, part))
                low, high = self._monomial_bounds(part)
                if others is not None and others > 0 and (high is None or limit // others < high):
                    self._learnt[part] = low, limit // others

    def _learn_end(self, term: tuple[Monomial, int], rest: int) -> None:
        """`term + rest != 0` moves a bound that is excluded."""
        monomial, by = term
        if rest % by:
            return
        low, high = self._monomial_bounds(monomial)
        if low == -rest // by:
            self._learnt[monomial] = low + 1, high
        elif high == -rest // by:
            self._learnt[monomial] = low, high - 1

    def _forget(self, text: str | None) -> None:
        """Drop a guard that follows from one recorded later."""
        if text is not None:
            self._guards.pop(text, None)

    def _monomial_bounds(self, monomial: Monomial) -> Bounds:
        if monomial in self._learnt:
            return self._learnt[monomial]
        if len(monomial) == 1:
            return self._bounds[monomial[0]]
        found: Bounds = (1, 1)
        for a in monomial:
            found = _product(found, self._monomial_bounds((a,)))
        return found

    def text(self, poly: Poly) -> str:
        """A polynomial as an expression of Python."""
        terms = []
        for monomial, coefficient in sorted(poly, key=lambda term: not term[0]):  # the constant last
            factors = [self._texts[a] for a in monomial]
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            terms.append("*".join(factors))
        return " + ".join(terms).replace("+ -", "- ")


def _product(a: Bounds, b: Bounds) -> Bounds:
    """The bounds of a product of two numbers between such bounds."""
    low, high = (-math.inf if a[0] is None else a[0]), (math.inf if a[1] is None else a[1])
    least, most = (-math.inf if b[0] is None else b[0]), (math.inf if b[1] is None else b[1])
    ends = [x * y if x and y else 0 for x in (low, high) for y in (least, most)]
    lower, upper = min(ends), max(ends)
    return None if lower == -math.inf else int(lower), None if upper == math.inf else int(upper)


def _without(monomial: Monomial, shared: Sequence[int]) -> Monomial:
    left = list(monomial)
    for a in shared:
        left.remove(a)
    return tuple(left)


def _caller() -> str:
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    if frame is None:
        return ""
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_lineno} {frame.f_code.co_name}"


def _is_told() -> bool:
    """Whether the caller's caller makes text for people."""
    return sys._getframe(2).f_code.co_filename.startswith(_TELLERS)


def _is_float(other: Any) -> bool:
    return isinstance(other, float | Real)


def real(value: Any) -> Any:
    """A Dim as a Real, exactly (sizes are below 2^53); other numbers as they are."""
    return Real(value.trace, f"({value.text})", float(value.hint)) if type(value) is Dim else value


class Dim:
    """An integer of a trace; see the module. Code that takes an `int` takes one: it says that it is one."""

    __slots__ = ("_hash", "hint", "poly", "trace")

    def __init__(self, trace: Trace, poly: Poly, hint: int) -> None:
        self.trace, self.poly, self.hint = trace, poly, hint
        self._hash = hash((id(trace), poly))

    @property
    def __class__(self) -> type:  # isinstance(d, int) is true; type(d) is Dim
        return int

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a Dim is not to be set")

    @property
    def text(self) -> str:
        """The expression over the trace's symbols s0, s1, ..., in Python."""
        return self.trace.text(self.poly)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Arithmetic with NumPy's scalars is that of integers; arrays take plain numbers."""
        sign = _UFUNCS.get(function.__name__)
        if (
            sign is not None
            and method == "__call__"
            and not options
            and not any(isinstance(x, np.ndarray) for x in inputs)
        ):
            return sign(*(x.item() if isinstance(x, np.generic) else x for x in inputs))
        return getattr(function, method)(*map(_fixed, inputs), **options)

    def __repr__(self) -> str:
        return f"<{self.text} = {self.hint}>"

    def fix(self) -> int:
        """The plain integer, to which this size is fixed from now on."""
        self.trace.guard(f"{self.text} == {self.hint}", fixes=True)
        return self.hint

    __int__ = __index__ = __trunc__ = fix

    def __str__(self) -> str:
        return str(self.hint if _is_told() else self.fix())

    def __format__(self, spec: str) -> str:
        return format(self.hint if _is_told() else self.fix(), spec)

    def __float__(self) -> float:
        return float(self.fix())

    def __hash__(self) -> int:
        return self._hash

    # Comparisons

    def _difference(self, other: Any) -> Poly | None:
        p = as_poly(other)
        return None if p is None else add(self.poly, p, -1)

    def _compare(self, other: Any, sign: str, decide: Callable[[int], bool]) -> bool:
        """Whether `self - other` (sign) 0. decide: the same of a number."""
        if _is_float(other):
            return _order(self.hint, _hint(other), sign)
        difference = self._difference(other)
        if difference is None:
            return NotImplemented  # type: ignore[no-any-return]
        if not difference:
            return decide(0)
        low, high = self.trace.bounds(difference)
        if (known := _known(low, high, sign)) is not None:
            return known
        is_so = decide(self.hint - _hint(other))
        negated = {"<": ">=", "<=": ">", "==": "!="}[sign]
        held = sign if is_so else negated
        text = f"{self.trace.text(difference)} {held} 0"
        self.trace.guard(text, fixes=is_so and sign == "==" and self.trace.is_one_symbol(difference))
        self.trace.learn(difference, held, text)
        return is_so

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if _is_float(other):
            return bool(real(self) == other)
        return self._compare(other, "==", lambda v: v == 0)

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "<", lambda v: v < 0)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "<=", lambda v: v <= 0)

    def __gt__(self, other: Any) -> bool:
        found = self.__le__(other)
        return found if found is NotImplemented else not found

    def __ge__(self, other: Any) -> bool:
        found = self.__lt__(other)
        return found if found is NotImplemented else not found

    def __bool__(self) -> bool:
        return not self.__eq__(0)

    # Arithmetic

    def __add__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) + other
        p = as_poly(other)
        return NotImplemented if p is None else self.trace._dim(add(self.poly, p))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) - other
        p = as_poly(other)
        return NotImplemented if p is None else self.trace._dim(add(self.poly, p, -1))

    def __rsub__(self, other: Any) -> Any:
        if _is_float(other):
            return other - real(self)
        p = as_poly(other)
        return NotImplemented if p is None else self.trace._dim(add(p, self.poly, -1))

    def __mul__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) * other
        p = as_poly(other)
        if p is None:
            return NotImplemented if not isinstance(other, str | list | tuple | bytes) else other * self.fix()
        return self.trace._dim(multiply(self.poly, p))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.trace._dim(multiply(self.poly, constant(-1)))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) // other
        return _divide(self.trace, self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        if _is_float(other):
            return other // real(self)
        return _divide(self.trace, other, self)[0]

    def __mod__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) % other
        return _divide(self.trace, self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        if isinstance(other, str):
            return other % self.fix()
        return _divide(self.trace, other, self)[1]

    def __divmod__(self, other: Any) -> Any:
        return _divide(self.trace, self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _divide(self.trace, other, self)

    def __truediv__(self, other: Any) -> Any:
        return real(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / real(self)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 4:
            return math.prod([self] * other)
        return self.fix() ** (other.fix() if type(other) is Dim else other)

    def __rpow__(self, other: Any) -> Any:
        return other ** self.fix()

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other)

    def __rlshift__(self, other: Any) -> Any:
        return other << self.fix()

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << other)

    def __rrshift__(self, other: Any) -> Any:
        return other >> self.fix()

    def __and__(self, other: Any) -> Any:
        if type(other) is int and other >= 0 and other & (other + 1) == 0:
            return self % (other + 1)
        if type(other) is int and other < 0 and -other & (-other - 1) == 0:  # x & -8
            return self - self % -other
        return self.fix() & _fixed(other)

    def __rand__(self, other: Any) -> Any:
        return self.__and__(other)

    def __or__(self, other: Any) -> Any:
        return self.fix() | _fixed(other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return self.fix() ^ _fixed(other)

    __rxor__ = __xor__

    def __invert__(self) -> Any:
        return -self - 1

    def __round__(self, digits: int | None = None) -> Any:
        return self

    def __ceil__(self) -> Any:
        return self

    __floor__ = __ceil__

    def bit_length(self) -> int:
        """As int's."""
        return self.fix().bit_length()

    def is_integer(self) -> bool:
        """As int's."""
        return True

    @property
    def real(self) -> Any:
        """As int's."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} belongs to its trace and cannot be pickled or copied")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def as_poly(value: Any) -> Poly | None:
    """An integer as a polynomial; None for what is none."""
    if type(value) is Dim:
        return value.poly
    if isinstance(value, int) or type(value).__name__.startswith(("int", "uint")):
        return constant(int(value))
    return None


def _hint(value: Any) -> Any:
    return value.hint if type(value) in (Dim, Real) else value


def _fixed(value: Any) -> Any:
    return value.fix() if type(value) is Dim else value


def _order(a: float, b: float, sign: str) -> bool:
    return a < b if sign == "<" else a <= b


def _known(low: int | None, high: int | None, sign: str) -> bool | None:
    """Whether a number between `low` and `high` is (sign) 0, if that follows."""
    if sign == "==":
        return False if (low is not None and low > 0) or (high is not None and high < 0) else None
    if sign == "<":
        if high is not None and high < 0:
            return True
        return False if low is not None and low >= 0 else None
    if high is not None and high <= 0:
        return True
    return False if low is not None and low > 0 else None


def _divide(trace: Trace, a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient and remainder as Python rounds them. What the divisor divides exactly leaves both."""
    p, q = as_poly(a), as_poly(b)
    if p is None or q is None:
        return NotImplemented, NotImplemented
    if b == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    if p == q:
        return 1, 0
    if len(q) > 1 and (exact := divide(p, q)) is not None:
        return trace._dim(exact), 0
    whole, rest = split(p, q)
    divisor = trace._dim(q)
    left = trace._dim(rest)
    if not rest:
        return trace._dim(whole), 0
    low, high = trace.bounds(rest)
    smallest, _ = trace.bounds(q)
    if smallest is not None and low is not None and high is not None and low >= 0 and high < smallest:
        return trace._dim(whole), left
    if type(left) is int and type(divisor) is int:
        quotient, remainder = divmod(left, divisor)
        return trace._dim(whole) + quotient, remainder
    quotient = _quotient(trace, rest, q)
    least, most = trace.bounds(q)
    return trace._dim(whole) + quotient, trace.atom(
        f"(({trace.text(rest)})%({trace.text(q)}))",
        _hint(left) % _hint(divisor),
        (0, None if most is None else most - 1) if least is not None and least > 0 else (None, None),
    )


def _quotient(trace: Trace, p: Poly, q: Poly) -> Any:
    """p // q as an atom. A quotient within is joined: (a // 2 + 3) // 5 is (a + 6) // 10."""
    by = q[0][1] if len(q) == 1 and not q[0][0] else 0
    inner = [term for term in p if term[0]]
    if by > 0 and len(inner) == 1 and inner[0][1] == 1 and inner[0][0] in trace.quotients:
        of, part = trace.quotients[inner[0][0]]
        rest = sum(c for m, c in p if not m)
        return trace._dim(add(of, constant(rest * part))) // (part * by)
    hint = trace._dim(p), trace._dim(q)
    text = f"(({trace.text(p)})//({trace.text(q)}))"
    found: Any = trace.atom(text, _hint(hint[0]) // _hint(hint[1]), _quotient_bounds(trace, p, q))
    if by > 0:
        trace.quotients[found.poly[0][0]] = p, by
    return found


def _quotient_bounds(trace: Trace, p: Poly, q: Poly) -> Bounds:
    low, high = trace.bounds(p)
    least, most = trace.bounds(q)
    if least is None or least <= 0:
        return None, None
    lower = None if low is None else low // least if low < 0 else low // most if most is not None else 0
    upper = None if high is None else high // least if high >= 0 else high // most if most is not None else -1
    return lower, upper
