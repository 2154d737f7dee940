"""Polynomials with integer coefficients over numbered atoms: the normal form of sizes."""

from __future__ import annotations

import math
from typing import Any, Protocol

from ...lazy_dataclass import dataclass

Monomial = tuple[int, ...]  # numbers of atoms, sorted; () for the constant
Poly = tuple[tuple[Monomial, int], ...]  # sorted, without zeros
Bounds = tuple[int | None, int | None]


def add(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """a + factor * b."""
    terms = dict(a)
    for m, c in b:
        terms[m] = terms.get(m, 0) + factor * c
    return tuple(sorted((m, c) for m, c in terms.items() if c))


def multiply(a: Poly, b: Poly) -> Poly:
    """a * b."""
    terms: dict[Monomial, int] = {}
    for m, c in a:
        for n, d in b:
            key = tuple(sorted((*m, *n)))
            terms[key] = terms.get(key, 0) + c * d
    return tuple(sorted((m, c) for m, c in terms.items() if c))


def constant(value: int) -> Poly:
    """A plain integer as a polynomial."""
    return (((), value),) if value else ()


def divide(p: Poly, q: Poly) -> Poly | None:
    """p / q if the division is exact, else None: (8*a*b + 8*b) / (a + 1) is 8*b."""
    lead, by = max(q, key=_order)
    whole: dict[Monomial, int] = {}
    for _ in range(len(p) + 8):
        if not p:
            return tuple(sorted(whole.items()))
        most, factor = max(p, key=_order)
        left = list(most)
        try:
            for a in lead:
                left.remove(a)
        except ValueError:
            return None
        if factor % by:
            return None
        term = (tuple(left), factor // by)
        whole[term[0]] = whole.get(term[0], 0) + term[1]
        p = add(p, multiply((term,), q), -1)
    return None


def _order(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    return len(term[0]), term[0]


def split(p: Poly, q: Poly) -> tuple[Poly, Poly]:
    """(whole, rest) with p = whole * q + rest; whole is 0 unless q is a single monomial."""
    if len(q) != 1:
        return (), p
    ((factors, by),) = q
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in p:
        left = list(m)
        try:
            for a in factors:
                left.remove(a)
        except ValueError:
            rest[m] = c
            continue
        if m or not factors:
            turns, over = divmod(c, by)
            if over and m:
                turns, over = 0, c  # 3*s0 // 2 stays together
            if turns:
                whole[tuple(left)] = turns
            if over:
                rest[m] = over
    return tuple(sorted(whole.items())), tuple(sorted(rest.items()))


# Interface of a trace


class SymbolScope(Protocol):
    """Methods of a Trace that symbolic integers, floats and ratios use; `Trace` documents them."""

    @property
    def quotients(self) -> dict[Monomial, tuple[Poly, int]]:
        """Dividend and divisor by the quotient's atom."""

    def dim(self, poly: Poly) -> int: ...
    def atom(self, text: str, hint: int, bounds: Bounds) -> int: ...
    def guard(self, text: str, *, fixes: bool = False, where: str = "") -> None: ...
    def learn(self, poly: Poly, sign: str, text: str) -> None: ...
    def bounds(self, poly: Poly) -> Bounds: ...
    def hint(self, poly: Poly) -> int: ...
    def text(self, poly: Poly) -> str: ...
    def reduced(self, poly: Poly) -> Poly: ...
    def shortened(self, poly: Poly, limit: int = ...) -> Poly: ...
    def is_one_symbol(self, poly: Poly) -> bool: ...
    def fixed_for_length(self, text: str) -> bool: ...


# Ratios


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
