"""Softmax: exponentials along an axis divided by their sum, or the logarithm of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .gather import check_axis
from .operator import Array, Cost, Op, Types, moved_bytes, need, register_op, tensor


@register_op
@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """y = exp(x - max) / sum(exp(x - max)) along the axis; with `log`, y = x - max - log(sum(exp(x - max))).

    Attributes: axis, log. x holds floats; 16-bit floats are computed in float32. A line of -infinity gives NaN.
    """

    axis: int
    log: bool

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(x.dtype.is_float, f"x must hold floats, got {x}")
        check_axis(self.axis, x)

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [TensorType(x.dtype, x.shape)]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        axis, wide = self.axis, x.astype(compute_dtype(x.dtype))
        with np.errstate(all="ignore"):
            shifted = wide - wide.max(axis, keepdims=True, initial=-np.inf)
            powers = np.exp(shifted)
            total = powers.sum(axis, keepdims=True)
            y = shifted - np.log(total) if self.log else powers / total
        return [y.astype(x.dtype)]

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """A maximum, a difference, an exponential (about 10), a sum and a division for each element."""
        return Cost(14.0 * outs[0].count, moved_bytes(ins, outs))
