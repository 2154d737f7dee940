"""Minimum and maximum of sizes as expressions, and comparisons with plain numbers that record no guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .maybe_symbolic import hint_of
from .polynomial import add
from .symbol_scope import SymbolScope
from .symbolic_int import SymbolicInt, as_poly


def symbolic_min(values: Iterable[Any]) -> Any:
    """The minimum of integers as an expression; Python's `min` would record guards."""
    return _extreme("min", min, values)


def symbolic_max(values: Iterable[Any]) -> Any:
    """The maximum of integers as an expression; Python's `max` would record guards."""
    return _extreme("max", max, values)


def tile_at_most(limit: int, size: Any) -> int:
    """min(limit, current size) as a plain number, for tile sizes.

    Other sizes of the trace may be smaller than the tile: see `may_be_less`.
    """
    tile: int = min(limit, hint_of(size))
    return tile


def may_be_less(size: Any, least: int) -> bool:
    """Whether a size may be less than `least` for some sizes of its trace. Records no guard."""
    if type(size) is not SymbolicInt:
        return bool(size < least)
    low, _ = size.trace.bounds(size.poly)
    return low is None or low < least


def may_have_remainder(size: Any, of: int) -> bool:
    """Whether a size may be no multiple of a plain number for some sizes of its trace. Records no guard."""
    rest = size % of
    return type(rest) is SymbolicInt or bool(rest != 0)


def _extreme(name: str, pick: Callable[[Iterable[Any]], Any], values: Iterable[Any]) -> Any:
    found = list(dict.fromkeys(values))
    trace = next((v.trace for v in found if type(v) is SymbolicInt), None)
    if trace is None:
        return pick(found)
    sign = 1 if name == "max" else -1
    kept = [
        v
        for i, v in enumerate(found)  # drop values dominated by another
        if not any(_is_past(trace, w, v, sign) for w in found[:i])
        and not any(_is_past(trace, w, v, sign) and not _is_past(trace, v, w, sign) for w in found[i + 1 :])
    ]
    if len(kept) == 1:
        return kept[0]
    bounds = [trace.bounds(as_poly(v) or ()) for v in kept]
    lows, highs = [b[0] for b in bounds], [b[1] for b in bounds]
    if name == "max":
        low = max((v for v in lows if v is not None), default=None)
        high = None if None in highs else max(v for v in highs if v is not None)
    else:
        low = None if None in lows else min(v for v in lows if v is not None)
        high = min((v for v in highs if v is not None), default=None)
    texts = [v.text if type(v) is SymbolicInt else str(v) for v in kept]
    return trace.atom(f"{name}({', '.join(texts)})", pick(hint_of(kept)), (low, high))


def _is_past(trace: SymbolScope, a: Any, b: Any, sign: int) -> bool:
    """Whether a >= b (sign 1) or a <= b (sign -1) follows from bounds."""
    low, high = trace.bounds(add(as_poly(a) or (), as_poly(b) or (), -1))
    return (low is not None and low >= 0) if sign > 0 else (high is not None and high <= 0)
