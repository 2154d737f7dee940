"""Matrix products whose left rows are normalized first: NormalizedMatMul, RowNormMatMul, RowNormQuantizedMatMul."""

from __future__ import annotations

from dataclasses import dataclass

from .matmul import MatrixProduct
from .normalize import TRAILING, Normalize
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, need, present, register_op, tensor
from .quantized_matmul import QuantizedMatMul


class _RowNorm(Op):
    """Mixin before a product's class. The last two inputs are the scale and bias of the rows, unless `arity` is 2."""

    __slots__ = ()

    kind: str
    epsilon: float

    def check_shape(self, ins: Types) -> None:
        super().check_shape(ins)
        a = tensor(ins, 0, "a")
        need(self.kind in TRAILING, f"kind must be one of {', '.join(TRAILING)}, got '{self.kind}'")
        self._norm(a.rank).check_shape([a, *ins[self._own : self.arity]])

    def reference(self, arrays: Arrays) -> list[Array]:
        (a,) = present(arrays, 1)
        rows = self._norm(a.ndim).reference([a, *arrays[self._own : self.arity]])
        return super().reference([*rows, *arrays[1 : self._own]])

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """The product's cost and the normalization's operations, and the bytes of its scale and bias."""
        product = super().cost(ins, outs)
        return Cost(product.flops + Normalize.flops * tensor(ins, 0, "a").count, product.bytes)

    @property
    def _own(self) -> int:
        """Number of the product's own inputs."""
        return max(2, self.arity - 2)

    def _norm(self, rank: int) -> Normalize:
        return Normalize(self.kind, self.epsilon, rank - 1)


def _check_matrix(op: MatrixProduct, ins: Types) -> None:
    b = tensor(ins, 1, "b")
    need(b.rank == 2, f"b must be one matrix, got {b}")
    need(not op.trans_a, "a must be stored by rows")


@frozen_op
class NormalizedMatMul(_RowNorm, MatrixProduct):
    """y[..., m, n] = sum over k of r[..., m, k] * b[k, n] with r = (a - mean) / sqrt(variance + epsilon) by rows of a.

    Inputs a[..., M, K] of floats, b[K, N]. Attributes: epsilon; trans_a, False; trans_b (bool): b is stored as [N, K].
    Layer normalization over the last axis before a product (Ba, Kiros and Hinton 2016), with its scale folded into b.
    """

    epsilon: float

    kind = "layer"

    def check_shape(self, ins: Types) -> None:
        _RowNorm.check_shape(self, ins)
        _check_matrix(self, ins)


@frozen_op
class RowNormMatMul(_RowNorm, MatrixProduct):
    """y[..., m, n] = sum over k of r[..., m, k] * b[k, n], r being Normalize of the rows of a.

    Inputs a[..., M, K] of floats, b[K, N], scale or none, bias or none, as in Normalize over the last axis; r is
    rounded to the type of a. Attributes: kind, "layer" or "rms"; epsilon; trans_a, False; trans_b (bool): b is stored
    as [N, K]. Unlike NormalizedMatMul, b is the original matrix, which other products may share.
    """

    kind: str
    epsilon: float

    arity = 4

    def check_shape(self, ins: Types) -> None:
        _RowNorm.check_shape(self, ins)
        _check_matrix(self, ins)


@register_op
@dataclass(frozen=True, slots=True, kw_only=True)
class RowNormQuantizedMatMul(_RowNorm, QuantizedMatMul):
    """QuantizedMatMul(r, b, scale, zero), r being Normalize of the rows of a.

    Inputs a[..., M, K], b, scale and zero as in QuantizedMatMul, then row_scale or none, row_bias or none, as in
    Normalize over the last axis; r is rounded to the type of a. Attributes: QuantizedMatMul's; kind, "layer" or "rms";
    epsilon. ShapeError if the inputs do not fit.
    """

    kind: str
    epsilon: float

    arity = 6
