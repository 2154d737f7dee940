"""Cumulative: running sums and products along an axis."""

from __future__ import annotations

import numpy as np

from .conv import compute_dtype
from .gather import check_axis
from .operator import Array, Arrays, Op, Types, frozen_op, need, present, tensor


@frozen_op
class Cumulative(Op):
    """y[.., i, ..] = sum or product of x[.., j, ..] over j <= i along the axis.

    Attributes: kind ("sum" or "prod"), axis, exclusive (j < i instead), reverse (from the end: j >= i, or j > i).
    x holds integers, which wrap, or floats; 16-bit floats are accumulated in float32.
    """

    kind: str
    axis: int
    exclusive: bool
    reverse: bool

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(self.kind in ("sum", "prod"), f"kind must be sum or prod, got '{self.kind}'")
        need(x.dtype.is_float or x.dtype.is_int, f"x must hold numbers, got {x}")
        check_axis(self.axis, x)

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        acc, axis = compute_dtype(x.dtype), self.axis
        accumulate = np.cumsum if self.kind == "sum" else np.cumprod
        line = np.flip(x, axis) if self.reverse else x
        with np.errstate(all="ignore"):
            y = accumulate(line, axis, dtype=acc)
        if self.exclusive and x.shape[axis]:
            first = np.full_like(np.take(y, [0], axis), 0 if self.kind == "sum" else 1)
            y = np.concatenate([first, np.take(y, range(x.shape[axis] - 1), axis)], axis)
        y = np.flip(y, axis) if self.reverse else y
        return [np.ascontiguousarray(y.astype(x.dtype))]
