"""Softmax: exponentials along an axis divided by their sum, or the logarithm of that."""

from __future__ import annotations

import numpy as np

from .conv import compute_dtype
from .gather import check_axis
from .operator import Array, Arrays, Op, Types, frozen_op, need, present, tensor


@frozen_op
class Softmax(Op):
    """y = exp(x - max) / sum(exp(x - max)) along the axis; with `log`, y = x - max - log(sum(exp(x - max))).

    Attributes: axis, log. x holds floats; 16-bit floats are computed in float32. A line of -infinity gives NaN.
    """

    axis: int
    log: bool

    flops = 14.0  # a maximum, a difference, an exponential (about 10), a sum and a division

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(x.dtype.is_float, f"x must hold floats, got {x}")
        check_axis(self.axis, x)

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        axis, wide = self.axis, x.astype(compute_dtype(x.dtype))
        with np.errstate(all="ignore"):
            shifted = wide - wide.max(axis, keepdims=True, initial=-np.inf)
            powers = np.exp(shifted)
            total = powers.sum(axis, keepdims=True)
            y = shifted - np.log(total) if self.log else powers / total
        return [y.astype(x.dtype)]
