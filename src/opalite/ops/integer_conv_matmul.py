"""IntegerConv and IntegerMatMul: products of 8-bit integers minus zero points, exact in int32."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import ForwardConv
from .matmul import MatrixProduct
from .operator import Array, Arrays, Op, Types, frozen_op, make_type, need, present, tensor

BYTES = (DType.INT8, DType.UINT8)
"""Element types of the operands."""


class ZeroPointOperands(Op):
    """Mixin before an operator's class: the operator on int8 or uint8 minus zero points, which are two more inputs.

    names: of the two operands, in messages.
    """

    __slots__ = ()

    sums = DType.INT32
    names: ClassVar[tuple[str, str]]

    def channel_axis(self, rank: int) -> int:
        """Axis of the second operand with its zero points, counted from the end."""
        raise NotImplementedError

    def check_shape(self, ins: Types) -> None:
        x, w = (tensor(ins, i, name) for i, name in enumerate(self.names))
        for t, name in ((x, self.names[0]), (w, self.names[1])):
            need(t.dtype in BYTES, f"{name} must hold 8-bit integers, got {t}")
        super().check_shape(self._wide(ins))
        _check_zero(ins, self.arity - 2, x, 1, self.names[0])
        _check_zero(ins, self.arity - 1, w, w.shape[self.channel_axis(w.rank)], self.names[1])

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return super().infer_shape(self._wide(ins))

    def reference(self, arrays: Arrays) -> list[Array]:
        x, w = present(arrays, 2)
        *bias, x_zero, w_zero = [*arrays, *[None] * self.arity][2 : self.arity]
        # float64 holds every sum of products exactly.
        along = (-1, *(1,) * (-1 - self.channel_axis(w.ndim)))
        wide = [_centred(x, x_zero, along), _centred(w, w_zero, along)]
        (y,) = super().reference([*wide, *(None if b is None else b.astype(np.float64) for b in bias)])
        return [y.astype(np.int64).astype(np.int32)]  # wraps around

    def _wide(self, ins: Types) -> list[TensorType | None]:
        """Input types of the operator in int32; a bias keeps its own type."""
        own = ins[: self.arity - 2]
        return [None if t is None else make_type(DType.INT32, t.shape) if i < 2 else t for i, t in enumerate(own)]


@frozen_op
class IntegerConv(ZeroPointOperands, ForwardConv):
    """Conv of x - x_zero with w - w_zero in int32; the padding of x - x_zero is zero.

    Inputs x[N,C,D...] and w[M,C/group,K...] of int8 or uint8 each, bias int32[M] or none, x_zero of x's type with one
    element or none, w_zero of w's type with one element or one for each output channel, or none. Attributes as Conv's.
    An epilogue reads int32 and may give another type.
    """

    arity = 5
    names = ("x", "weights")

    def channel_axis(self, rank: int) -> int:
        return -rank


@frozen_op
class IntegerMatMul(ZeroPointOperands, MatrixProduct):
    """MatMul of a - a_zero with b - b_zero in int32.

    Inputs a[..., M, K] and b[..., K, N] of int8 or uint8 each, a_zero of a's type with one element or none, b_zero of
    b's type with one element or one for each column of the product, or none. Attributes as MatMul's. An epilogue reads
    int32 and may give another type.
    """

    arity = 4
    names = ("a", "b")

    def channel_axis(self, rank: int) -> int:
        return -2 if self.trans_b else -1


def _check_zero(ins: Types, i: int, of: TensorType, most: int, whose: str) -> None:
    zero = ins[i] if i < len(ins) else None
    if zero is not None:
        fits = zero.count == 1 or (zero.rank == 1 and zero.count == most)
        count = "one element" if most == 1 else f"one or {most} elements"
        need(fits and zero.dtype is of.dtype, f"{whose}'s zero point must hold {count} of {of.dtype}, got {zero}")


def _centred(q: Array, zero: Array | None, along: tuple[int, ...]) -> Array:
    """q minus its zero point in float64; a vector of zero points is reshaped to `along`."""
    wide = q.astype(np.float64)
    if zero is None:
        return wide
    return wide - zero.reshape(() if zero.size == 1 else along).astype(np.float64)
