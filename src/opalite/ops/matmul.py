"""MatMul: products of stacks of matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import Shape, TensorType
from .operator import (
    Array,
    Arrays,
    Cost,
    Op,
    Outs,
    Types,
    broadcast_shape,
    frozen_op,
    make_type,
    moved_bytes,
    need,
    present,
    tensor,
)

HELD = (
    *(DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16),
    *(DType.INT32, DType.INT64, DType.UINT32, DType.UINT64),
)
"""Element types of products; integers wrap around."""


def matrix_dims(shape: Shape, transposed: bool) -> tuple[int, int]:
    """Rows and columns of the matrices in `shape`, whose last two dimensions are stored swapped if `transposed`."""
    return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])


@dataclass(frozen=True, slots=True)
class MatrixProduct(Op):
    """Base of MatMul, IntegerMatMul and NormalizedMatMul."""

    trans_a: bool
    trans_b: bool

    arity = 2
    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        need(a.rank >= 2 and b.rank >= 2, f"a matrix product needs inputs of rank 2 or more, got {a} and {b}")
        need(a.dtype is b.dtype, f"a and b must be of one element type, got {a} and {b}")
        need(a.dtype in HELD, f"a matrix product is of floats or of 32- or 64-bit integers, got {a}")
        (_, k), (rows, _) = matrix_dims(a.shape, self.trans_a), matrix_dims(b.shape, self.trans_b)
        of_a, of_b = (" (stored transposed)" if t else "" for t in (self.trans_a, self.trans_b))
        need(k == rows, f"a has {k!r} columns{of_a} but b has {rows!r} rows{of_b}: {a}, {b}")
        broadcast_shape([a.shape[:-2], b.shape[:-2]])

    def infer_shape(self, ins: Types) -> list[TensorType]:
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        m, n = matrix_dims(a.shape, self.trans_a)[0], matrix_dims(b.shape, self.trans_b)[1]
        return [make_type(a.dtype, (*broadcast_shape([a.shape[:-2], b.shape[:-2]]), m, n))]

    def reference(self, arrays: Arrays) -> list[Array]:
        a, b = present(arrays, 2)
        dtype = a.dtype
        if dtype.itemsize == 2:
            a, b = a.astype(np.float32), b.astype(np.float32)
        a = np.swapaxes(a, -1, -2) if self.trans_a else a
        b = np.swapaxes(b, -1, -2) if self.trans_b else b
        with np.errstate(all="ignore"):
            return [np.matmul(a, b).astype(dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        k = matrix_dims(tensor(ins, 0, "a").shape, self.trans_a)[1]
        return Cost(2.0 * outs[0].count * k, moved_bytes(ins, outs))


@frozen_op
class MatMul(MatrixProduct):
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], leading dimensions broadcasting.

    Inputs a[..., M, K], b[..., K, N], both of rank 2 or more. Attributes: trans_a, trans_b (bool): the last two
    dimensions of that input are stored swapped; exact as Conv's. The 16-bit floats are summed in float32.
    """

    exact: bool = False
