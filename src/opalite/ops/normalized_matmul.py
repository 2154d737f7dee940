"""NormalizedMatMul: a matrix product whose left rows are layer-normalized first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.tensor_type import TensorType
from .matmul import MatrixProduct
from .operator import Array, Cost, Types, need, register_op, tensor


@register_op
@dataclass(frozen=True, slots=True)
class NormalizedMatMul(MatrixProduct):
    """y[..., m, n] = sum over k of r[..., m, k] * b[k, n] with r = (a - mean) / sqrt(variance + epsilon) by rows of a.

    Inputs a[..., M, K] of floats, b[K, N]. Attributes: epsilon; trans_a, False; trans_b (bool): b is stored as [N, K].
    Layer normalization over the last axis before a product (Ba, Kiros and Hinton 2016), with its scale folded into b.
    """

    epsilon: float

    def check_shape(self, ins: Types) -> None:
        MatrixProduct.check_shape(self, ins)
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        need(a.dtype.is_float, f"normalized rows must be floats, got {a}")
        need(b.rank == 2, f"b must be one matrix, got {b}")
        need(not self.trans_a, "a must be stored by rows")

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        a = arrays[0]
        assert a is not None
        wide = a.astype(np.float32) if a.dtype.itemsize == 2 else a
        with np.errstate(all="ignore"):
            centered = wide - wide.mean(-1, keepdims=True)
            normal = centered / np.sqrt((centered * centered).mean(-1, keepdims=True) + self.epsilon)
        return MatrixProduct.reference(self, [normal.astype(a.dtype), *arrays[1:]])

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """The product's cost and the normalization's operations, without further bytes."""
        product = MatrixProduct.cost(self, ins, outs)
        return Cost(product.flops + 8.0 * tensor(ins, 0, "a").count, product.bytes)
