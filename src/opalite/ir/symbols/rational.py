"""Ratios: what a float that came from sizes is a rounding of, so that it can be rounded to a whole number exactly.

Models compute sizes in floats, too: `ceil(float(h) / 2.0)`. Floor and ceiling of the float are those of the ratio of
integers as long as the dividend is a whole number that the float's type holds, one of 24 bits for float32:

- a ratio that is whole is held exactly;
- one that is not is 1 / divisor at least from the next whole number, and half the spacing of floats near it is less, if
  |dividend| <= 2^24. So rounding, which keeps order, does not reach that number.

Of ratios that are rounded already only those by a power of two, which are exact, are computed with any further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .polynomial import Poly, add, constant, multiply

if TYPE_CHECKING:
    from .symbol_trace import Trace

_MOST = 1 << 20
"""Plain numbers of a ratio are no larger, so that their products with sizes are below 2^53."""


@dataclass(frozen=True)
class Rational:
    """top / by, in lowest terms; by is above 0."""

    top: Poly
    by: int

    @property
    def is_exact(self) -> bool:
        """Whether a float holds the ratio itself: the divisor is a power of two."""
        return self.by & (self.by - 1) == 0

    def floor(self, trace: Trace) -> Any:
        """The largest integer that is no larger."""
        return trace.dim(self.top) // self.by

    def ceil(self, trace: Trace) -> Any:
        """The smallest integer that is no smaller."""
        return -(trace.dim(multiply(self.top, constant(-1))) // self.by)


def make_ratio(top: Poly, by: int) -> Rational | None:
    """top / by; None where plain numbers of it are too large for floats."""
    if by < 0:
        top, by = multiply(top, constant(-1)), -by
    shared = math.gcd(by, *(c for _, c in top))
    if shared > 1:
        top, by = tuple((m, c // shared) for m, c in top), by // shared
    if by > _MOST or any(abs(c) > _MOST for _, c in top):
        return None
    return Rational(top, by)


def plain_ratio(value: float) -> Rational | None:
    """Of a plain number."""
    if not abs(value) <= _MOST:  # which NaN is not, either
        return None
    top, by = float(value).as_integer_ratio()
    return make_ratio(constant(top), by)


def combined(sign: str, a: Rational | None, b: Rational | None) -> Rational | None:
    """a (sign) b, of which floor and ceiling are those of the float that comes of it; None where that is not known."""
    if a is None or b is None or not a.is_exact or not b.is_exact:
        return None
    match sign:
        case "+" | "-":
            by = max(a.by, b.by)
            factor = by // b.by if sign == "+" else -(by // b.by)
            return make_ratio(add(multiply(a.top, constant(by // a.by)), b.top, factor), by)
        case "*":
            return make_ratio(multiply(a.top, b.top), a.by * b.by)
        case "/" if len(b.top) == 1 and not b.top[0][0]:
            return make_ratio(multiply(a.top, constant(b.by)), a.by * b.top[0][1])
    return None
