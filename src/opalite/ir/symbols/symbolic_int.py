"""SymbolicInt: an integer with the expression that computes it from symbols."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .floordiv_mod import quotient_and_remainder
from .polynomial import Poly, Rational, SymbolScope, add, constant, multiply
from .symbolic_float import SymbolicFloat, call_ufunc

_MESSAGE_FOLDERS = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in ("ops", "importer"))
"""Folders in which text of sizes occurs in messages only; there str() gives the hint and records no guard."""

_SHOWN = r"<[^<>]+ = (-?\d+)>"


def with_plain_sizes(text: str) -> str:
    """`text` with hints in place of the `repr` of SymbolicInts."""
    return re.sub(_SHOWN, r"\1", text)


def _formats_message() -> bool:
    """Whether the caller's caller formats a message."""
    return sys._getframe(2).f_code.co_filename.startswith(_MESSAGE_FOLDERS)


def _is_float(other: Any) -> bool:
    return isinstance(other, float | SymbolicFloat)


def real(value: Any) -> Any:
    """A SymbolicInt as a SymbolicFloat, exactly (sizes are below 2^53); other numbers unchanged."""
    if type(value) is not SymbolicInt:
        return value
    return SymbolicFloat(value.trace, f"({value.text})", float(value.hint), Rational(value.poly, 1))


class SymbolicInt:
    """An integer of a trace (see the module docstring). `isinstance(x, int)` is true; type(x) is SymbolicInt."""

    __slots__ = ("_hash", "hint", "poly", "trace")

    def __init__(self, trace: SymbolScope, poly: Poly, hint: int) -> None:
        self.trace, self.poly, self.hint = trace, poly, hint
        self._hash = hash((id(trace), poly))

    @property
    def __class__(self) -> type:  # isinstance(d, int) is true; type(d) is SymbolicInt
        return int

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a SymbolicInt cannot be set")

    @property
    def text(self) -> str:
        """The Python expression over the trace's symbols s0, s1, ...."""
        return self.trace.text(self.poly)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Arithmetic with NumPy scalars stays symbolic; with arrays the value is fixed."""
        return call_ufunc(function, method, inputs, options, _fixed)

    def __repr__(self) -> str:
        return f"<{self.text} = {self.hint}>"

    def fix(self) -> int:
        """The plain integer; a guard fixes this size."""
        self.trace.guard(f"{self.text} == {self.hint}", fixes=True)
        return self.hint

    __int__ = __index__ = __trunc__ = fix

    def __str__(self) -> str:
        return str(self.hint if _formats_message() else self.fix())

    def __format__(self, spec: str) -> str:
        return format(self.hint if _formats_message() else self.fix(), spec)

    def __float__(self) -> float:
        return float(self.fix())

    def __hash__(self) -> int:
        return self._hash

    # Comparisons

    def _difference(self, other: Any) -> Poly | None:
        p = as_poly(other)
        return None if p is None else self.trace.reduced(add(self.poly, p, -1))

    def _compare(self, other: Any, sign: str, decide: Callable[[int], bool]) -> bool:
        """Whether `self - other` (sign) 0; a guard unless bounds decide it. decide: the comparison of an int."""
        if _is_float(other):
            return _order(self.hint, _hint(other), sign)
        difference = self._difference(other)
        if difference is None:
            return NotImplemented  # type: ignore[no-any-return]
        if not difference or not difference[-1][0]:  # a plain number
            return decide(difference[0][1] if difference else 0)
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
            if type(other) is SymbolicFloat:
                return bool(real(self) == other)
            number = float(other)  # type: ignore[arg-type]
            return number.is_integer() and self == int(number)
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
        return NotImplemented if p is None else self.trace.dim(add(self.poly, p))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) - other
        p = as_poly(other)
        return NotImplemented if p is None else self.trace.dim(add(self.poly, p, -1))

    def __rsub__(self, other: Any) -> Any:
        if _is_float(other):
            return other - real(self)
        p = as_poly(other)
        return NotImplemented if p is None else self.trace.dim(add(p, self.poly, -1))

    def __mul__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) * other
        p = as_poly(other)
        if p is None:
            return NotImplemented if not isinstance(other, str | list | tuple | bytes) else other * self.fix()
        return self.trace.dim(multiply(self.poly, p))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.trace.dim(multiply(self.poly, constant(-1)))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) // other
        return _divide(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        if _is_float(other):
            return other // real(self)
        return _divide(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        if _is_float(other):
            return real(self) % other
        return _divide(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        if isinstance(other, str):
            return other % self.fix()
        return _divide(other, self)[1]

    def __divmod__(self, other: Any) -> Any:
        return _divide(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _divide(other, self)

    def __truediv__(self, other: Any) -> Any:
        return real(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / real(self)

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 4:
            return math.prod([self] * other)
        return self.fix() ** (other.fix() if type(other) is SymbolicInt else other)

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
        """As int.bit_length; its guards hold for sizes between the same two powers of two."""
        if self < 1:
            return self.fix().bit_length()
        bits = self.hint.bit_length()
        return bits if self >= 1 << (bits - 1) and self < 1 << bits else self.fix().bit_length()

    def is_integer(self) -> bool:
        """True, as for int."""
        return True

    @property
    def real(self) -> Any:
        """The number itself, as for int."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} belongs to its trace and cannot be pickled or copied")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def as_poly(value: Any) -> Poly | None:
    """An integer as a polynomial; None for other values."""
    if type(value) is SymbolicInt:
        return value.trace.reduced(value.poly)
    if isinstance(value, int) or type(value).__name__.startswith(("int", "uint")):
        return constant(int(value))
    return None


def _hint(value: Any) -> Any:
    return value.hint if type(value) in (SymbolicInt, SymbolicFloat) else value


def _fixed(value: Any) -> Any:
    return value.fix() if type(value) is SymbolicInt else value


def _order(a: float, b: float, sign: str) -> bool:
    return a < b if sign == "<" else a <= b


def _known(low: int | None, high: int | None, sign: str) -> bool | None:
    """Whether a number between `low` and `high` is (sign) 0; None if the bounds do not decide it."""
    if sign == "==":
        return False if (low is not None and low > 0) or (high is not None and high < 0) else None
    if sign == "<":
        if high is not None and high < 0:
            return True
        return False if low is not None and low >= 0 else None
    if high is not None and high <= 0:
        return True
    return False if low is not None and low > 0 else None


def _divide(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient and remainder, rounded as in Python, where at least one operand is symbolic."""
    p, q = as_poly(a), as_poly(b)
    if p is None or q is None:
        return NotImplemented, NotImplemented
    if b == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    trace = a.trace if type(a) is SymbolicInt else b.trace
    return quotient_and_remainder(trace, p, q)
