"""Rational: the exact ratio behind a float computed from sizes, so that floor and ceiling are exact.

Models compute sizes in floats too: `ceil(float(h) / 2.0)`. Floor and ceiling of the float equal those of the ratio of
integers if the float's type holds the dividend exactly (24 bits for float32):

- a ratio that is a whole number is held exactly;
- any other ratio differs from the next whole number by at least 1 / divisor, more than half the spacing of floats
  there if |dividend| <= 2^24, so that rounding does not reach the whole number.

Only ratios with a power-of-two divisor, which are exact, take part in further arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .polynomial import Poly, add, constant, multiply
from .symbol_scope import SymbolScope

_MOST = 1 << 20
"""Largest plain number in a ratio, so that products with sizes are below 2^53."""


@dataclass(frozen=True)
class Rational:
    """The ratio top / by in lowest terms; by is positive."""

    top: Poly
    by: int

    @property
    def is_exact(self) -> bool:
        """Whether a float holds the ratio exactly: the divisor is a power of two."""
        return self.by & (self.by - 1) == 0

    def floor(self, trace: SymbolScope) -> Any:
        """The largest integer not above the ratio."""
        return trace.dim(self.top) // self.by

    def ceil(self, trace: SymbolScope) -> Any:
        """The smallest integer not below the ratio."""
        return -(trace.dim(multiply(self.top, constant(-1))) // self.by)


def make_ratio(top: Poly, by: int) -> Rational | None:
    """The ratio top / by; None if its plain numbers are too large for floats."""
    if by < 0:
        top, by = multiply(top, constant(-1)), -by
    shared = math.gcd(by, *(c for _, c in top))
    if shared > 1:
        top, by = tuple((m, c // shared) for m, c in top), by // shared
    if by > _MOST or any(abs(c) > _MOST for _, c in top):
        return None
    return Rational(top, by)


def plain_ratio(value: float) -> Rational | None:
    """The ratio of a plain number."""
    if not abs(value) <= _MOST:  # which NaN is not, either
        return None
    top, by = float(value).as_integer_ratio()
    return make_ratio(constant(top), by)


def combined(sign: str, a: Rational | None, b: Rational | None) -> Rational | None:
    """The ratio a (sign) b; None if its floor and ceiling could differ from the float's."""
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
