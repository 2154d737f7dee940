"""RotaryAppend: a rotary embedding whose result is written into a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.tensor_type import TensorType
from .append import Append
from .operator import Array, Cost, Op, Types, need, register_op, tensor
from .rotary_embedding import RotaryEmbedding


@register_op
@dataclass(frozen=True, slots=True)
class RotaryAppend(Op):
    """y = x with RotaryEmbedding(new, cos, sin) written from position `at` on along `axis`.

    Inputs x, of rank 4; new, cos and sin, as RotaryEmbedding's, new of the type of x. Attributes: axis, not the last
    one, and at, as Append's; perm, as RotaryEmbedding's. y shares the memory of x: no other node may read x.
    """

    axis: int
    at: int
    perm: tuple[int, int, int, int] = (0, 1, 2, 3)

    arity = 4
    in_place = True

    def check_shape(self, ins: Types) -> None:
        x, new = tensor(ins, 0, "x"), tensor(ins, 1, "new")
        RotaryEmbedding(self.perm).check_shape(ins[1:])
        need(0 <= self.axis < 3, f"axis {self.axis} is not one of rows")
        need(x.dtype is new.dtype, f"new must be as x, got {new} and {x}")
        Append(self.axis, self.at).check_shape([x, *RotaryEmbedding(self.perm).infer_shape(ins[1:])])

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [tensor(ins, 0, "x")]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        return Append(self.axis, self.at).reference([arrays[0], *RotaryEmbedding(self.perm).reference(arrays[1:])])

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """The rotation's cost, without the bytes of a copy."""
        return RotaryEmbedding(self.perm).cost(ins[1:], [tensor(ins, 1, "new")])
