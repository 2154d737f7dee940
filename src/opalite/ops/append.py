"""Append: new rows written into memory that was reserved for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.types import TensorType
from .base import Array, Cost, Op, Types, need, register_op, tensor


@register_op
@dataclass(frozen=True, slots=True)
class Append(Op):
    """y = x, with `new` in the place of what is there from position `at` on along `axis`.

    Inputs x and new, of one type and equal sizes but along the axis, along which x has room for new. The planner puts y
    where x lies, so that nothing but `new` is moved: no other node may read x.
    """

    axis: int
    at: int

    arity = 2

    def check_shape(self, ins: Types) -> None:
        x, new = tensor(ins, 0, "x"), tensor(ins, 1, "new")
        need(0 <= self.axis < x.rank, f"axis {self.axis} is not an axis of {x}")
        same = x.rank == new.rank and all(
            a == b for i, (a, b) in enumerate(zip(x.shape, new.shape, strict=True)) if i != self.axis
        )
        need(same and x.dtype is new.dtype, f"new {new} does not fit {x} off axis {self.axis}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [tensor(ins, 0, "x")]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        x, new = arrays[0], arrays[1]
        assert x is not None
        assert new is not None
        y = x.copy()
        y[(slice(None),) * self.axis + (slice(self.at, self.at + new.shape[self.axis]),)] = new
        return [y]

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        new = tensor(ins, 1, "new")
        return Cost(0.0, 2.0 * new.count * new.storage.size)
