"""Tolerances of comparisons between two results, by kind of comparison and stored element type.

A tolerance is a share of the expected output's largest magnitude. `verify`, the tuner, the tests of models and the
benchmarks use this table.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .constants.lazy_array import Array
from .dtype import DType
from .precision import Precision

Column = DType | Precision

_F64, _F32, _F16, _BF16 = DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16
_FAST = Precision.FP16_FAST

TOLERANCES: Mapping[str, Mapping[Column, float]] = {
    # One node on equal inputs: rounding and summation order.
    "node": {_F64: 1e-9, _F32: 1e-4, _F16: 1e-2, _FAST: 3e-2, _BF16: 5e-2},
    # A matmul with rows quantized to 8 bits, a scale for each group: half a step of 127, in random sums.
    "rounded node": {_F32: 3e-2, _F16: 3e-2, _FAST: 5e-2},
    # Outputs of a model: errors of all nodes.
    "model": {_F64: 1e-8, _F32: 1e-3, _F16: 2e-2, _FAST: 5e-2, _BF16: 2e-1},
    # Outputs of a model quantized to 8 bits: a value near a rounding boundary changes by one step.
    "quantised model": {_F32: 2.5e-1, _F16: 2.5e-1, _FAST: 2.5e-1},
    # Two kernels on the same inputs: each may differ by a node's tolerance.
    "tuning": {_F64: 1e-9, _F32: 1e-3, _F16: 2e-2, _FAST: 6e-2, _BF16: 6e-2},
}
"""Rows by kind of comparison; columns by storage, or by precision for half accumulation. Integers are exact."""


SAFETY = 0.5
"""Share of a tolerance that fp16 may use on the calibration inputs: other inputs and devices differ more."""


def tolerance(what: str, stored: Column) -> float:
    """Tolerance as a share of the largest magnitude; 0 for integers. KeyError for an unknown row."""
    if stored is Precision.FP32 or stored is Precision.FP16:
        stored = stored.stored(DType.FLOAT32)
    return TOLERANCES[what].get(stored, 0.0)


def column(precision: Precision, dtype: DType) -> Column:
    """The column for a value of `dtype` computed in `precision`."""
    if precision is Precision.WIDE:
        return dtype
    return _FAST if precision is _FAST and dtype is DType.FLOAT32 else precision.stored(dtype)


def magnitude(array: Array) -> float:
    """The largest finite magnitude; 0 for integers, which are compared exactly."""
    if array.size == 0 or array.dtype.kind in "biu":
        return 0.0
    return float(np.abs(np.nan_to_num(_wide(array), posinf=0.0, neginf=0.0)).max())


def largest_difference(got: Array, want: Array) -> float:
    """The largest absolute difference; infinite if a number is NaN or infinite on one side alone."""
    if got.size == 0:
        return 0.0
    g, w = _wide(got), _wide(want)
    if want.dtype.kind in "biu":
        return max(1.0, float(np.abs(g - w).max())) if np.any(got != want) else 0.0
    finite = np.isfinite(w)
    if not np.array_equal(finite, np.isfinite(g)) or not np.array_equal(g[~finite], w[~finite], equal_nan=True):
        return float("inf")
    return float(np.abs(g[finite] - w[finite]).max(initial=0.0))


def relative_difference(got: Array, want: Array) -> float:
    """`largest_difference` as a share of the largest magnitude; for integers the share of unequal elements."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind not in "fcV":
        return float(np.mean(got != want)) if want.size else 0.0
    return largest_difference(got, want) / (magnitude(want) or 1.0)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
