"""Bounds of polynomials that contain both a quotient and its dividend.

In `2 * ((h + 1) // 2) - h` the bounds of each term alone give little. With the quotient replaced by its dividend, `(h +
1 - r) - h` for a remainder r of 0 or 1, the bounds are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .polynomial import Bounds, Monomial, Poly, add

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
