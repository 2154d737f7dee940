"""Functions on numbers that may be symbolic or plain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from .polynomial import SymbolScope, add
from .symbolic_float import SymbolicFloat
from .symbolic_int import SymbolicInt, as_poly, real

_NOT_PLAIN = frozenset((SymbolicInt, SymbolicFloat, tuple, list))


def _is_plain(values: Sequence[Any]) -> bool:
    """Whether `values` contain neither symbols nor sequences, as most shapes."""
    return _NOT_PLAIN.isdisjoint(map(type, values))


def is_symbolic(value: Any) -> bool:
    """Whether `value` is a SymbolicInt or SymbolicFloat, or a tuple or list with one."""
    kind = type(value)
    if kind is tuple or kind is list:
        return not _is_plain(value) and any(map(is_symbolic, value))
    return kind is SymbolicInt or kind is SymbolicFloat


def hint_of(value: Any) -> Any:
    """`value`, a number, tuple or list, with hints in place of symbols; records no guard."""
    kind = type(value)
    if kind is tuple or kind is list:
        return value if kind is tuple and _is_plain(value) else kind(map(hint_of, value))
    return value.hint if kind is SymbolicInt or kind is SymbolicFloat else value


def is_multiple(value: Any, of: int) -> bool:
    """Whether `value` is a multiple of a plain integer; guarded if it is at present.

    For choices that are correct without it.
    """
    return bool(hint_of(value) % of == 0 and value % of == 0)


def fixed(value: Any) -> Any:
    """`value`, a number, tuple or list, with its sizes fixed to plain numbers by guards."""
    if type(value) in (SymbolicInt, SymbolicFloat):
        return value.fix()
    if type(value) in (tuple, list):
        return type(value)(map(fixed, value))
    return value


def as_float32(value: Any) -> Any:
    """A number rounded to float32; symbolic for symbolic numbers."""
    if type(value) is SymbolicInt:
        value = real(value)
    return value.float32() if type(value) is SymbolicFloat else _float32(value)


def is_symbolic_int(value: Any) -> TypeGuard[SymbolicInt]:
    """Whether `value` is a SymbolicInt, typed."""
    return type(value) is SymbolicInt


def is_symbolic_float(value: Any) -> TypeGuard[SymbolicFloat]:
    """Whether `value` is a SymbolicFloat, typed."""
    return type(value) is SymbolicFloat


def as_float(value: Any) -> Any:
    """`float(value)`, or a SymbolicFloat for a symbolic number."""
    return real(value) if is_symbolic(value) else float(value)


def int_or_symbolic(value: Any) -> int:
    """`int(value)`, or the SymbolicInt itself."""
    found: int = value if is_symbolic_int(value) else int(value)  # type: ignore[assignment]
    return found


def always_equal(a: Any, b: Any) -> bool:
    """Whether two integers, or sequences of them, are equal for all sizes; records no guard.

    For optimizations that are correct without it.
    """
    if isinstance(a, tuple | list):
        if _is_plain(a) and _is_plain(b):
            return tuple(a) == tuple(b)
        return len(a) == len(b) and all(map(always_equal, a, b))
    if type(a) is SymbolicInt or type(b) is SymbolicInt:
        return as_poly(a) == as_poly(b)
    return bool(a == b)


def equal_guarded(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal; guarded if they are at present. For optimizations that are correct without it.

    Shapes that differ at present count as different. So does a symbolic 1 compared with a plain 1.
    """
    if always_equal(tuple(a), tuple(b)):
        return True
    if hint_of(tuple(a)) != hint_of(tuple(b)):
        return False
    if any(hint_of(x) == 1 and not always_equal(x, y) for x, y in zip(a, b, strict=True)):
        return False
    return all(x == y for x, y in zip(a, b, strict=True))


def runs_along(size: Any, along: Any) -> bool:
    """Whether an axis of `size` elements is not broadcast against `along`, for all sizes if that can be proved."""
    if type(size) is SymbolicInt and always_equal(size, along):
        return True
    return bool(size != 1)


def _float32(value: float) -> float:
    return float(np.float32(value))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "float32": _float32,
}
"""Functions that texts of expressions may call."""


# Minimum and maximum as expressions, and comparisons with plain numbers that record no guard


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
