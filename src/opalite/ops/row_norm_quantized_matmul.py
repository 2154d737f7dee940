"""RowNormQuantizedMatMul: a QuantizedMatMul whose left rows are normalized first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.tensor_type import TensorType
from .normalize import TRAILING, Normalize
from .operator import Array, Cost, Types, need, register_op, tensor
from .quantized_matmul import QuantizedMatMul


@register_op
@dataclass(frozen=True, slots=True, kw_only=True)
class RowNormQuantizedMatMul(QuantizedMatMul):
    """QuantizedMatMul(r, b, scale, zero), r being Normalize of the rows of a.

    Inputs a[..., M, K], b, scale and zero as in QuantizedMatMul, then row_scale or none, row_bias or none, as in
    Normalize over the last axis; r is rounded to the type of a. Attributes: QuantizedMatMul's; kind, "layer" or "rms";
    epsilon. ShapeError if the inputs do not fit.
    """

    kind: str
    epsilon: float

    arity = 6

    def check_shape(self, ins: Types) -> None:
        QuantizedMatMul.check_shape(self, ins)
        a = tensor(ins, 0, "a")
        need(self.kind in TRAILING, f"kind must be one of {', '.join(TRAILING)}, got '{self.kind}'")
        self._norm(a.rank).check_shape([a, *ins[4:6]])

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        a = arrays[0]
        assert a is not None
        rows = self._norm(a.ndim).reference([a, *arrays[4:6]])
        return QuantizedMatMul.reference(self, [*rows, *arrays[1:4]])

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """The product's and the normalization's cost, and the bytes of row_scale and row_bias."""
        product = QuantizedMatMul.cost(self, ins, outs)
        return Cost(product.flops + 8.0 * tensor(ins, 0, "a").count, product.bytes)

    def _norm(self, rank: int) -> Normalize:
        return Normalize(self.kind, self.epsilon, rank - 1)
