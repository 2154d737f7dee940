"""RotateAppend: rows turned on their way to memory that was reserved for them, as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.tensor_type import TensorType
from .append import Append
from .operator import Array, Cost, Op, Types, need, register_op, tensor
from .rotary_embedding import Rotate


@register_op
@dataclass(frozen=True, slots=True)
class RotateAppend(Op):
    """y = x, with what Rotate makes of `new` in the place of what is there from position `at` on along `axis`.

    Inputs x, of rank 4; new, cosines and sines, as Rotate has them, new of the type of x. Attributes: axis, not the
    last one, and at, as Append has them; perm, as Rotate has it. y lies where x does: no other node may read x.
    """

    axis: int
    at: int
    perm: tuple[int, int, int, int] = (0, 1, 2, 3)

    arity = 4
    in_place = True

    def check_shape(self, ins: Types) -> None:
        x, new = tensor(ins, 0, "x"), tensor(ins, 1, "new")
        Rotate(self.perm).check_shape(ins[1:])
        need(0 <= self.axis < 3, f"axis {self.axis} is not one of rows")
        need(x.dtype is new.dtype, f"new must be as x, got {new} and {x}")
        Append(self.axis, self.at).check_shape([x, *Rotate(self.perm).infer_shape(ins[1:])])

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [tensor(ins, 0, "x")]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        return Append(self.axis, self.at).reference([arrays[0], *Rotate(self.perm).reference(arrays[1:])])

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        """What is rotated is written to its place at once."""
        return Rotate(self.perm).cost(ins[1:], [tensor(ins, 1, "new")])
