"""Polynomials with integer coefficients over numbered atoms: the normal form of sizes."""

from __future__ import annotations

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
