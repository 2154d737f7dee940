"""QuantizedMatMul and QuantizedGather: operators on constant matrices of low-bit integers with scales."""

from __future__ import annotations

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .gather import check_indices, clamp_indices
from .integer_conv_matmul import BYTES
from .matmul import MatrixProduct, matrix_dims
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, need, present, tensor

BITS = (2, 4, 8)
"""Bit widths of the integers."""

FLOATS = (DType.FLOAT32, DType.FLOAT16)
"""Types of scales, inputs and results."""


def check_block_scales(ins: Types, first: int, rows: int, columns: int, bits: int, block: int) -> None:
    """ShapeError unless inputs `first` and `first + 1` are scales and zero points of a blocked [rows, columns]."""
    scale, zero = tensor(ins, first, "scale"), ins[first + 1] if first + 1 < len(ins) else None
    need(bits in BITS, f"integers have 2, 4 or 8 bits, got {bits}")
    need(block > 0, f"a block has at least one element, got {block}")
    shape = (rows, -(-columns // block))
    of = f"{rows} rows of {columns} in blocks of {block}"
    need(scale.shape == shape, f"scales for {of} are {list(shape)}, got {scale}")
    need(scale.dtype in FLOATS, f"scales are float32 or float16, got {scale}")
    if zero is not None:
        need(zero.count == 1 or zero.shape == shape, f"there is one zero point or {list(shape)} of them, got {zero}")
        need(zero.dtype in (*BYTES, DType.FLOAT32), f"zero points are 8-bit integers or float32, got {zero}")


def dequantize_blocks(q: Array, scale: Array, zero: Array | None, block: int) -> Array:
    """(q - zero) * scale in float64, for rows in blocks of `block` columns."""
    at = np.arange(q.shape[1]) // block
    wide = q.astype(np.float64)
    if zero is not None:
        wide -= zero.reshape(()) if zero.size == 1 else zero.astype(np.float64)[:, at]
    out: Array = wide * scale.astype(np.float64)[:, at]
    return out


@frozen_op
class QuantizedMatMul(MatrixProduct):
    """y[..., m, n] = sum over k of a[..., m, k] * (b[k, n] - zero[n, k / block]) * scale[n, k / block].

    Inputs a[..., M, K] of float32 or float16; b[K, N] of int8 or uint8 with `bits` significant bits; scale [N, ceil(K /
    block)] of float32 or float16; zero of one element or scale's shape, int8, uint8 or float32, or none (0).
    Attributes: trans_a, False; trans_b (bool): b is stored as [N, K]; bits: 2, 4 or 8; block; rounds (bool): kernels
    may quantize a to 8 bits, with a scale for each row and part of a block; table (4 bits): the 16 values that b
    indexes, without a zero.
    """

    bits: int
    block: int
    rounds: bool = False
    table: tuple[float, ...] = ()

    arity = 4

    def check_shape(self, ins: Types) -> None:
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        need(a.dtype in FLOATS, f"a must be float32 or float16, got {a}")
        need(b.dtype in BYTES and b.rank == 2, f"b must be a matrix of 8-bit integers, got {b}")
        need(not self.trans_a, "a must be stored by rows")
        MatrixProduct.check_shape(self, [a, make_type(a.dtype, b.shape)])
        k, n = matrix_dims(b.shape, self.trans_b)
        check_block_scales(ins, 2, n, k, self.bits, self.block)
        if self.table:
            zero = ins[3] if len(ins) > 3 else None
            plain = self.bits == 4 and b.dtype is DType.UINT8 and zero is None
            need(plain and len(self.table) == 16, f"16 values are for uint8 of 4 bits, got {len(self.table)} and b {b}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        return MatrixProduct.infer_shape(self, [a, make_type(a.dtype, b.shape)])

    def reference(self, arrays: Arrays) -> list[Array]:
        a, b, scale = present(arrays, 3)
        zero = arrays[3] if len(arrays) > 3 else None
        held = b if self.trans_b else b.T
        if self.table:
            held = np.array(self.table, np.float32)[held]
        real = dequantize_blocks(held, scale, zero, self.block)
        return [np.matmul(a.astype(np.float64), real.T).astype(a.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        a, b = tensor(ins, 0, "a"), tensor(ins, 1, "b")
        return Cost(2.0 * outs[0].count * a.shape[-1], _moved(ins, outs, a, b.count * self.bits / 8))


def may_round(op: Op) -> bool:
    """Whether kernels of `op` may quantize activations, so that results may differ by a quantization step."""
    return isinstance(op, QuantizedMatMul) and op.rounds


@frozen_op
class QuantizedGather(Op):
    """y[i, k] = (x[indices[i], k] - zero[indices[i], k / block]) * scale[indices[i], k / block], in scale's type.

    Inputs x[R, C] of int8 or uint8 with `bits` significant bits; indices (i32 or i64) of any shape, counted and clamped
    as Gather's; scale [R, ceil(C / block)] and zero as QuantizedMatMul's. Attributes: bits; block.
    """

    bits: int
    block: int

    arity = 4

    def check_shape(self, ins: Types) -> None:
        x, indices = tensor(ins, 0, "x"), check_indices(ins)
        need(x.dtype in BYTES and x.rank == 2, f"x must be a matrix of 8-bit integers, got {x}")
        need(x.shape[0] > 0 or indices.count == 0, f"indices {indices} pick from rows of x {x}, which is empty")
        check_block_scales(ins, 2, x.shape[0], x.shape[1], self.bits, self.block)

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, indices, scale = tensor(ins, 0, "x"), tensor(ins, 1, "indices"), tensor(ins, 2, "scale")
        return [make_type(scale.dtype, (*indices.shape, x.shape[1]))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, indices, scale = present(arrays, 3)
        zero = arrays[3] if len(arrays) > 3 else None
        at = clamp_indices(indices, x.shape[0]).reshape(-1)
        zeros = zero if zero is None or zero.size == 1 else zero[at]
        real = dequantize_blocks(x[at], scale[at], zeros, self.block)
        return [real.astype(scale.dtype).reshape(*indices.shape, x.shape[1])]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(2.0 * outs[0].count, _moved((), outs, tensor(ins, 1, "indices"), outs[0].count * self.bits / 8))


def _moved(ins: Types, outs: Outs, read: TensorType, packed: float) -> float:
    """Bytes of the results, of `read`, of packed integers, and of their scales and zero points."""
    others = sum(t.count * t.storage.size for t in (*outs, read, *ins[2:]) if t is not None)
    return 1.0 * others + packed
