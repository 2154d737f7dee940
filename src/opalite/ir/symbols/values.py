"""What may be a number of a trace or a plain one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .dim import Dim
from .real import Real


def is_symbolic(value: Any) -> bool:
    """Whether `value` is a Dim or Real, or a tuple or list with one."""
    if type(value) in (Dim, Real):
        return True
    return type(value) in (tuple, list) and any(map(is_symbolic, value))


def hint_of(value: Any) -> Any:
    """The numbers at hand in `value`, a number, tuple or list, without a guard: for costs and what is shown."""
    if type(value) in (Dim, Real):
        return value.hint
    if type(value) in (tuple, list):
        return type(value)(map(hint_of, value))
    return value


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
