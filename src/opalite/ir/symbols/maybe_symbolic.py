"""What may be a number of a trace or a plain one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from .symbolic_float import SymbolicFloat
from .symbolic_int import SymbolicInt, as_poly, real

_NOT_PLAIN = frozenset((SymbolicInt, SymbolicFloat, tuple, list))


def _is_plain(values: Sequence[Any]) -> bool:
    """Whether there are neither symbols nor sequences among `values`, as in most shapes."""
    return _NOT_PLAIN.isdisjoint(map(type, values))


def is_symbolic(value: Any) -> bool:
    """Whether `value` is a Dim or Real, or a tuple or list with one."""
    kind = type(value)
    if kind is tuple or kind is list:
        return not _is_plain(value) and any(map(is_symbolic, value))
    return kind is SymbolicInt or kind is SymbolicFloat


def hint_of(value: Any) -> Any:
    """The numbers at hand in `value`, a number, tuple or list, without a guard: for costs and what is shown."""
    kind = type(value)
    if kind is tuple or kind is list:
        return value if kind is tuple and _is_plain(value) else kind(map(hint_of, value))
    return value.hint if kind is SymbolicInt or kind is SymbolicFloat else value


def is_multiple(value: Any, of: int) -> bool:
    """Whether `value` is one of a plain integer: guarded where it is at hand, for what is right where it is not too."""
    return bool(hint_of(value) % of == 0 and value % of == 0)


def fixed(value: Any) -> Any:
    """`value`, a number, tuple or list, with plain numbers in it, to which its sizes are fixed from now on."""
    if type(value) in (SymbolicInt, SymbolicFloat):
        return value.fix()
    if type(value) in (tuple, list):
        return type(value)(map(fixed, value))
    return value


def as_float32(value: Any) -> Any:
    """A number rounded to float32: a Real where it came from sizes."""
    if type(value) is SymbolicInt:
        value = real(value)
    return value.float32() if type(value) is SymbolicFloat else _float32(value)


def is_dim(value: Any) -> TypeGuard[SymbolicInt]:
    """Whether `value`, which may say that it is an int, is a Dim."""
    return type(value) is SymbolicInt


def is_real(value: Any) -> TypeGuard[SymbolicFloat]:
    """Whether `value`, which may say that it is a float, is a Real."""
    return type(value) is SymbolicFloat


def as_float(value: Any) -> Any:
    """`float(value)`, but a Real stays what it is, and a Dim becomes one."""
    return real(value) if is_symbolic(value) else float(value)


def same_or_int(value: Any) -> int:
    """A Dim as it is; another number, such as NumPy's, as a plain integer."""
    found: int = value if is_dim(value) else int(value)  # type: ignore[assignment]
    return found


def always_equal(a: Any, b: Any) -> bool:
    """Whether two integers, or sequences of them, are equal whatever the symbols are; it records no guard.

    For what is right, if slower, where equal sizes are taken for different ones.
    """
    if isinstance(a, tuple | list):
        if _is_plain(a) and _is_plain(b):
            return tuple(a) == tuple(b)
        return len(a) == len(b) and all(map(always_equal, a, b))
    if type(a) is SymbolicInt or type(b) is SymbolicInt:
        return as_poly(a) == as_poly(b)
    return bool(a == b)


def agree(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal: guarded where they are so at hand.

    For what is right, if slower, where equal shapes are taken for different ones: those that differ at hand are, and so
    is an axis that has one element at hand beside one that has one always.
    """
    if always_equal(tuple(a), tuple(b)):
        return True
    if hint_of(tuple(a)) != hint_of(tuple(b)):
        return False
    if any(hint_of(x) == 1 and not always_equal(x, y) for x, y in zip(a, b, strict=True)):
        return False
    return all(x == y for x, y in zip(a, b, strict=True))


def runs_along(size: Any, along: Any) -> bool:
    """Whether an axis of `size` elements runs along one of `along`, of which a single element is repeated, and not only
    at the sizes at hand: as sizes that are always equal do, but for plain ones."""
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
"""What expressions' texts may call."""
