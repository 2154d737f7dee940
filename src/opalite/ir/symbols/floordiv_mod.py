"""Floor division and remainder of sizes: polynomials if the division is exact, else bounded atoms."""

from __future__ import annotations

import math
from typing import Any

from .expression_limits import LONGEST
from .polynomial import Bounds, Poly, SymbolScope, add, constant, divide, split


def quotient_and_remainder(trace: SymbolScope, p: Poly, q: Poly) -> tuple[Any, Any]:
    """Quotient and remainder of p by q (not 0), rounded as in Python."""
    p, q = trace.shortened(p, LONGEST // 2), trace.shortened(q, LONGEST // 2)
    if p == q:
        return 1, 0
    if len(q) > 1 and (exact := divide(p, q)) is not None:
        return trace.dim(exact), 0
    whole, rest = split(p, q)
    divisor = trace.dim(q)
    left = trace.dim(rest)
    if not rest:
        return trace.dim(whole), 0
    low, high = trace.bounds(rest)
    smallest, _ = trace.bounds(q)
    if smallest is not None and low is not None and high is not None and low >= 0 and high < smallest:
        return trace.dim(whole), left
    if type(left) is int and type(divisor) is int:
        quotient, remainder = divmod(left, divisor)
        return trace.dim(whole) + quotient, remainder
    quotient = _quotient(trace, rest, q)
    least, most = trace.bounds(q)
    return trace.dim(whole) + quotient, trace.atom(
        f"(({trace.text(rest)})%({trace.text(q)}))",
        trace.hint(rest) % trace.hint(q),
        (0, None if most is None else most - 1) if least is not None and least > 0 else (None, None),
    )


def _quotient(trace: SymbolScope, p: Poly, q: Poly) -> Any:
    """p // q as an atom, in a normal form.

    Nested quotients are merged: (a // 2 + 3) // 5 becomes (a + 6) // 10. For a plain divisor, a dividend with a
    negative leading term is negated: -a // 8 becomes -((a + 7) // 8), so that both spellings of ceil division are one
    atom.
    """
    by = q[0][1] if len(q) == 1 and not q[0][0] else 0
    inner = [term for term in p if term[0]]
    if by > 0 and inner and inner[0][1] < 0:
        return -_quotient(trace, add(constant(by - 1), p, -1), q)
    shared = math.gcd(by, *(c for _, c in inner)) if by > 0 else 1
    if shared > 1:  # (4 * a + 6) // 8 is (2 * a + 3) // 4, and so is (4 * a + 7) // 8
        return trace.dim(tuple((m, c // shared) for m, c in p if c // shared)) // (by // shared)
    if by > 0 and len(inner) == 1 and inner[0][1] == 1 and inner[0][0] in trace.quotients:
        of, part = trace.quotients[inner[0][0]]
        rest = sum(c for m, c in p if not m)
        return trace.dim(add(of, constant(rest * part))) // (part * by)
    text = f"(({trace.text(p)})//({trace.text(q)}))"
    found: Any = trace.atom(text, trace.hint(p) // trace.hint(q), _quotient_bounds(trace, p, q))
    if by > 0 and hasattr(found, "poly"):
        trace.quotients[found.poly[0][0]] = p, by
    return found


def _quotient_bounds(trace: SymbolScope, p: Poly, q: Poly) -> Bounds:
    low, high = trace.bounds(p)
    least, most = trace.bounds(q)
    if least is None or least <= 0:
        return None, None
    lower = None if low is None else low // least if low < 0 else low // most if most is not None else 0
    upper = None if high is None else high // least if high >= 0 else high // most if most is not None else -1
    return lower, upper
