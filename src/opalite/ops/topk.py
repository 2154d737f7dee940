"""TopK: the largest or smallest elements along an axis, with their positions."""

from __future__ import annotations

import math

import numpy as np

from ..ir.dtype import DType
from ..ir.symbols import hint_of
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .gather import check_axis
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor


@frozen_op
class TopK(Op):
    """Values and int64 indices of the k first elements along the axis, best first.

    Attributes: k, axis, largest (else smallest first), sorted (False permits any order; results are sorted
    nevertheless). Ties: the lower index comes first. NaN counts as larger than every number.
    """

    k: int
    axis: int
    largest: bool
    sorted: bool

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        check_axis(self.axis, x)
        need(x.dtype.is_float or x.dtype.is_int, f"x must hold numbers, got {x}")
        size = x.shape[self.axis]
        need(0 <= self.k <= size, f"k must lie in [0, {size}] for axis {self.axis} of x {x}, got {self.k}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, axis = tensor(ins, 0, "x"), self.axis
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return [make_type(x.dtype, shape), make_type(DType.INT64, shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,), axis = present(arrays, 1), self.axis
        keys = x.astype(compute_dtype(x.dtype))
        if self.largest:
            # Ascending order of the reversed line, read backwards: equal elements keep their order.
            order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        indices = np.take(order, range(self.k), axis)
        return [np.take_along_axis(x, indices, axis), indices.astype(np.int64)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        x = tensor(ins, 0, "x")
        return Cost(x.count * (1 + math.log2(hint_of(self.k) + 1)), moved_bytes(ins, outs))
