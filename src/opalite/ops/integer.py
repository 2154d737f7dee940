"""Convolutions and matrix products of 8-bit integers less their zero points, exact in int32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.dtype import DType
from ..ir.types import TensorType
from .base import Array, Attrs, Types, make_type, need, register_op, tensor
from .conv import Conv
from .expr import Expr
from .matmul import MatMul

BYTES = (DType.INT8, DType.UINT8)
"""Element types of the operands."""


@register_op
class IntegerConv(Conv):
    """Conv of x - x_zero with w - w_zero in int32; where x is padded, x - x_zero is zero.

    Inputs x[N,C,D...] and w[M,C/group,K...] of int8 or uint8 each, bias int32[M] or none, x_zero of x's type with one
    element or none, w_zero of w's type with one element or one for each output channel, or none. attrs as Conv's. An
    epilogue sees int32 and may give another type.
    """

    name = "IntegerConv"
    arity = 5
    sums = DType.INT32

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x, w = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        _check_bytes(x, "x")
        _check_bytes(w, "weights")
        super().check_shape(attrs, _wide(ins, 3))
        _check_zero(ins, 3, x, 1, "x_zero")
        _check_zero(ins, 4, w, w.shape[0], "w_zero")

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        return _result(attrs, super().infer_shape(attrs, _wide(ins, 3)))

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        x, w, bias, x_zero, w_zero = (*arrays, None, None, None)[:5]
        assert x is not None
        assert w is not None
        axis = (-1, *(1,) * (w.ndim - 1))
        wide = None if bias is None else bias.astype(np.float64)
        (y,) = super().reference(attrs, [_centred(x, x_zero), _centred(w, w_zero, axis), wide])
        return [_wrapped(y)]


@register_op
class IntegerMatMul(MatMul):
    """MatMul of a - a_zero with b - b_zero in int32.

    Inputs a[..., M, K] and b[..., K, N] of int8 or uint8 each, a_zero of a's type with one element or none, b_zero of
    b's type with one element or one for each column of the product, or none. attrs as MatMul's. An epilogue sees int32
    and may give another type.
    """

    name = "IntegerMatMul"
    arity = 4
    sums = DType.INT32

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        _check_bytes(a, "a")
        _check_bytes(b, "b")
        super().check_shape(attrs, _wide(ins, 2))
        _check_zero(ins, 2, a, 1, "a_zero")
        _check_zero(ins, 3, b, b.shape[-2 if attrs["trans_b"] else -1], "b_zero")

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        return _result(attrs, super().infer_shape(attrs, _wide(ins, 2)))

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        a, b, a_zero, b_zero = (*arrays, None, None)[:4]
        assert a is not None
        assert b is not None
        axis = (-1, 1) if attrs["trans_b"] else (-1,)
        (y,) = super().reference(attrs, [_centred(a, a_zero), _centred(b, b_zero, axis)])
        return [_wrapped(y)]


def _check_bytes(t: TensorType, what: str) -> None:
    need(t.dtype in BYTES, f"{what} must hold 8-bit integers, got {t}")


def _check_zero(ins: Types, i: int, of: TensorType, most: int, what: str) -> None:
    zero = ins[i] if i < len(ins) else None
    if zero is not None:
        fits = zero.count == 1 or (zero.rank == 1 and zero.count == most)
        expected = "one element" if most == 1 else f"one or {most} elements"
        need(fits and zero.dtype is of.dtype, f"{what} must hold {expected} of {of.dtype}, got {zero}")


def _wide(ins: Types, count: int) -> list[TensorType | None]:
    """The first `count` inputs as the operator in int32 has them; the bias keeps its own type."""
    return [None if t is None else make_type(DType.INT32, t.shape) if i < 2 else t for i, t in enumerate(ins[:count])]


def _result(attrs: Attrs, types: list[TensorType]) -> list[TensorType]:
    epilogue: Expr | None = attrs.get("epilogue")
    return types if epilogue is None else [make_type(epilogue.dtype, types[0].shape)]


def _centred(q: Array, zero: Array | None, axis: tuple[int, ...] = ()) -> Array:
    """q less its zero point in float64, which holds every sum of products exactly; a vector lies along `axis`."""
    wide = q.astype(np.float64)
    if zero is None:
        return wide
    return wide - (zero.reshape(()) if zero.size == 1 else zero.reshape(axis)).astype(np.float64)


def _wrapped(y: Array) -> Array:
    """Whole numbers as int32, which wraps around."""
    return y.astype(np.int64).astype(np.int32)
