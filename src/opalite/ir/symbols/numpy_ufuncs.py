"""NumPy scalars in arithmetic with symbolic numbers: they count as Python numbers, so that expressions are kept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "true_divide": operator.truediv,
    "divide": operator.truediv,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def call_ufunc(
    function: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any], fixed: Callable[[Any], Any]
) -> Any:
    """The result of `__array_ufunc__`; arrays and functions other than arithmetic get `fixed(x)` for each input."""
    sign = _OPERATORS.get(function.__name__)
    arrays = any(isinstance(x, np.ndarray) for x in inputs)
    if sign is not None and method == "__call__" and not options and not arrays:
        return sign(*(x.item() if isinstance(x, np.generic) else x for x in inputs))
    return getattr(function, method)(*map(fixed, inputs), **options)
