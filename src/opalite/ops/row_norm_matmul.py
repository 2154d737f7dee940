"""RowNormMatMul: a matrix product whose left rows are normalized, scaled and shifted first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.tensor_type import TensorType
from .matmul import MatrixProduct
from .normalize import TRAILING, Normalize
from .operator import Array, Cost, Types, need, register_op, tensor


@register_op
@dataclass(frozen=True, slots=True)
class RowNormMatMul(MatrixProduct):
    """y[..., m, n] = sum over k of r[..., m, k] * b[k, n], r being Normalize of the rows of a.

    Inputs a[..., M, K] of floats, b[K, N], scale or none, bias or none, as in Normalize over the last axis; r is
    rounded to the type of a. Attributes: kind, "layer" or "rms"; epsilon; trans_a, False; trans_b (bool): b is stored
    as [N, K]. Unlike NormalizedMatMul, b is the original matrix, which other products may share.
    """

    kind: str
    epsilon: float

    arity = 4

    def check_shape(self, ins: Types) -> None:
        MatrixProduct.check_shape(self, ins)
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        need(self.kind in TRAILING, f"kind must be one of {', '.join(TRAILING)}, got '{self.kind}'")
        need(b.rank == 2, f"b must be one matrix, got {b}")
        need(not self.trans_a, "a must be stored by rows")
        self._norm(a.rank).check_shape([a, *ins[2:4]])

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        a = arrays[0]
        assert a is not None
        rows = self._norm(a.ndim).reference([a, *arrays[2:4]])
        return MatrixProduct.reference(self, [*rows, arrays[1]])

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """The product's and the normalization's cost, and the bytes of scale and bias."""
        product = MatrixProduct.cost(self, ins, outs)
        return Cost(product.flops + 8.0 * tensor(ins, 0, "a").count, product.bytes)

    def _norm(self, rank: int) -> Normalize:
        return Normalize(self.kind, self.epsilon, rank - 1)
