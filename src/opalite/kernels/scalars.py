"""Constant scalars in generated code: part of the source when they are round numbers, else kernel arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ir.dtype import DType
from ..ir.graph import Value
from ..ops.expr import Lit
from .vectors import compute_type


def is_scalar(v: Value) -> bool:
    """A constant of one element that kernels can hold."""
    return v.data is not None and v.type.count == 1 and v.dtype.on_device


def is_round(v: Value) -> bool:
    """A constant scalar such as 0, 0.5 or 6 becomes a literal; any other is passed by value, so that models whose
    scales differ share programs."""
    if v.data is None or not is_scalar(v):
        return False
    x = float(v.data.reshape(()))
    return math.isfinite(x) and abs(x) <= 16 and (2 * x).is_integer()


def literal(v: Value) -> Lit:
    """The constant scalar as part of an expression."""
    assert v.data is not None
    return Lit(v.data.reshape(()).item(), v.dtype)


def scalar_arg(v: Value) -> np.generic:
    """The constant scalar as a kernel argument of its compute type."""
    assert v.data is not None
    held = {"float": np.float32, "double": np.float64}.get(compute_type(v.dtype, 1).base)
    kind: Any = held or (np.int32 if v.dtype is DType.BOOL else v.dtype.np.type)
    result: np.generic = kind(v.data.reshape(()).astype(kind))
    return result
