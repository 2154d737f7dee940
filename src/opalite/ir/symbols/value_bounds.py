"""Lower and upper bounds of atoms and of polynomials over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from .polynomial import Bounds, Monomial, Poly, add


class KnownBounds:
    """Initial bounds of atoms, and bounds learnt from guards."""

    def __init__(self) -> None:
        self._atoms: list[Bounds] = []
        self._learnt: dict[Monomial, Bounds] = {}
        self._limiting: dict[tuple[Monomial, bool], str] = {}  # text of the guard behind each bound (upper: True)

    def copy(self) -> KnownBounds:
        """A copy that learns independently."""
        made = KnownBounds()
        made._atoms, made._learnt, made._limiting = [*self._atoms], dict(self._learnt), dict(self._limiting)
        return made

    def add_atom(self, bounds: Bounds) -> None:
        """Add the bounds of the next atom."""
        self._atoms.append(bounds)

    def of(self, poly: Poly) -> Bounds:
        """Lower and upper bound of a polynomial; None if unknown."""
        low, high = self._sum_bounds(poly)
        if len(poly) > 1 and (low is None or high is None or any(c < 0 for _, c in poly)):
            least, most = self._product_bounds(poly)
            low = least if low is None or (least is not None and least > low) else low
            high = most if high is None or (most is not None and most < high) else high
        return low, high

    def _product_bounds(self, poly: Poly) -> Bounds:
        """Bounds of f * rest + c, where f is the common factor: s0*s1 - s0 is s0 * (s1 - 1)."""
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

    def learn(self, poly: Poly, sign: str, text: str) -> str | None:
        """Update the bounds of a single monomial from the guard `poly (sign) 0`.

        Returns the text of an earlier guard that follows from this one, or None.
        """
        terms = [term for term in poly if term[0]]
        if len(terms) != 1 or sign == "==":
            return None
        if sign == "!=":
            self._learn_end(terms[0], sum(c for m, c in poly if not m))
            return None
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
            return None
        follows = self._limiting.get((monomial, is_upper))
        self._limiting[monomial, is_upper] = text
        return follows

    def _learn_parts(self, monomial: Monomial, limit: int) -> None:
        """Bounds of partial products that follow from `monomial <= limit`, if the other factors are at least 1.

        A partial product is at most `limit` / others. For a limit of 0 or more the others are at their least, for a
        negative one at their largest; without a bound of the others, the partial product is only known to be negative.
        """
        for size in range(1, len(monomial)):
            for part in combinations(monomial, size):
                least, most = self._monomial_bounds(_without(monomial, part))
                if least is None or least <= 0:
                    continue
                others = least if limit >= 0 else most
                most_of_part = -1 if others is None else limit // others
                low, high = self._monomial_bounds(part)
                if high is None or most_of_part < high:
                    self._learnt[part] = low, most_of_part

    def _learn_end(self, term: tuple[Monomial, int], rest: int) -> None:
        """Tighten a bound that `term + rest != 0` excludes."""
        monomial, by = term
        if rest % by:
            return
        low, high = self._monomial_bounds(monomial)
        if low == -rest // by:
            self._learnt[monomial] = low + 1, high
        elif high == -rest // by:
            self._learnt[monomial] = low, high - 1

    def _monomial_bounds(self, monomial: Monomial) -> Bounds:
        if monomial in self._learnt:
            return self._learnt[monomial]
        if len(monomial) == 1:
            return self._atoms[monomial[0]]
        found: Bounds = (1, 1)
        for a in monomial:
            found = _product(found, self._monomial_bounds((a,)))
        return found


def _product(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of the product of two bounded numbers."""
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


# Polynomials that contain both a quotient and its dividend


_MOST_STEPS = 6
"""Quotients replaced one after the other; each may contain another."""


def bounds_by_floordiv(
    poly: Poly, quotients: Mapping[Monomial, tuple[Poly, int]], known: Callable[[Poly], Bounds]
) -> Bounds:
    """Bounds of `poly` after replacing quotients by their dividends.

    quotients: dividend and divisor, a plain positive integer, by the monomial of the quotient. known: bounds of a
    polynomial.
    """
    low, high = known(poly)
    scale, least, most = 1, 0, 0  # scale * poly is between taken + least and taken + most
    taken = poly
    for _ in range(_MOST_STEPS):
        found = max((term for term in taken if term[0] in quotients), default=None)  # the latest, of earlier ones
        if found is None:
            break
        monomial, count = found
        dividend, by = quotients[monomial]
        without = tuple(term for term in taken if term[0] != monomial)
        if count % by:
            without = add((), without, by)
            scale, least, most = scale * by, least * by, most * by
        else:
            count //= by
        taken = add(without, dividend, count)  # count * by * quotient is count * (dividend - rest)
        over = count * (by - 1)
        least, most = least - max(over, 0), most - min(over, 0)
        lower, upper = known(taken)
        if lower is not None:
            lower = -(-(lower + least) // scale)
            low = lower if low is None else max(low, lower)
        if upper is not None:
            upper = (upper + most) // scale
            high = upper if high is None else min(high, upper)
    return low, high
