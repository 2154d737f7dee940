"""Low-bit weights of domain com.microsoft: products and gathers of constants that stay quantised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...ir import Array, DType, Value
from ...ir.constants.lazy_array import LazyArray, reshaped
from ...ir.constants.quantized_constant import QuantizedConstant
from ...ops.operator import normalize_axis
from ..walk.node_context import NodeContext, onnx_op
from .unfuse import MS

_WIDTHS = {DType.INT4: 4, DType.UINT4: 4, DType.INT8: 8}


@onnx_op("MatMulNBits", domain=MS)
def matmul_nbits(ctx: NodeContext) -> Value:
    """Import MatMulNBits: a times weights of 2, 4 or 8 bits in blocks along K."""
    a = ctx.input(0)
    bits, block = ctx.attr("bits", 4), ctx.attr("block_size", 32)
    rows, columns = ctx.attr("N", 0), ctx.attr("K", 0)
    if bits not in (2, 4, 8) or ctx.attr("weight_prepacked", 0):
        raise UnsupportedOpError(
            f"{ctx.label} has weights of {bits} bits or packed for one device; export 2, 4 or 8 bits"
        )
    blocks = -(-columns // block)
    packed, given = ctx.input(1), ctx.input(2)
    if packed.type.count * (8 // bits) != rows * blocks * block or given.type.count != rows * blocks:
        raise ShapeError(f"{ctx.label} has weights {packed.shape}, scales {given.shape} for N={rows}, K={columns}")
    codes = packed_codes(ctx, packed, 1, rows, columns, bits)
    zeros = _zero_points(ctx, rows, blocks, bits)
    scales = matrix_of(ctx, 2, rows, blocks)
    # Without g_idx, element k is in block k // block_size. With g_idx, onnxruntime dequantises weights and rounds no
    # row.
    group = None if ctx.get(4) is None else ctx.const(4).reshape(-1)[:columns]
    rounds = ctx.attr("accuracy_level", 0) == 4 and group is None
    if group is not None and (group != np.arange(columns) // block).any():
        order = np.argsort(group, kind="stable")
        if (group[order] == np.arange(columns) // block).all():
            # Sorting both sides by group gives contiguous blocks, which kernels support.
            a = ctx.take(a, order, len(a.shape) - 1)
            levels = QuantizedConstant(_permute_columns(codes, order), scales, zeros, bits, 1, block)
        else:
            if zeros.size > 1:
                zeros = zeros[:, group]
            all_scales = scales.read() if isinstance(scales, LazyArray) else scales
            levels = QuantizedConstant(codes, all_scales[:, group], zeros, bits)
    else:
        levels = QuantizedConstant(codes, scales, zeros, bits, 1, block, rounds=rounds)
    return ctx.plus(ctx.matmul(a, ctx.dequantised(levels, a.dtype), trans_b=True), ctx.get(5))


def _zero_points(ctx: NodeContext, rows: int, blocks: int, bits: int) -> Array:
    """Return zero points [rows, blocks]: floats, or packed like the weights; by default the middle of the range."""
    if ctx.get(3) is None:
        return np.array(1 << (bits - 1), np.uint8)
    given = ctx.const(3)
    if given.dtype != np.uint8:
        return given.reshape(rows, blocks).astype(np.float32)
    return unpack_bits(given.reshape(rows, -1), bits)[:, :blocks]


@onnx_op("GatherBlockQuantized", domain=MS)
def gather_block_quantized(ctx: NodeContext) -> Value:
    """Import GatherBlockQuantized: rows of a constant of 2, 4 or 8 bits with blocks along one axis."""
    data, scales, zeros = ctx.input(0), ctx.input(2), ctx.get(3)
    block, given = ctx.attr("block_size", 128), ctx.attr("bits", 4)
    is_packed = data.dtype is DType.UINT8
    bits = given if is_packed else _WIDTHS.get(data.dtype, 0)
    if len(data.shape) != 2 or bits not in (2, 4, 8):
        raise UnsupportedOpError(
            f"{ctx.label} picks from {data.type} of {bits or given} bits; export a matrix of 2, 4 or 8 bits"
        )
    rows, columns = data.shape[0], data.shape[1] * (8 // bits if is_packed else 1)
    gathered = normalize_axis(ctx.attr("gather_axis", 0), 2)
    axis = normalize_axis(ctx.attr("quantize_axis", 1), 2)
    shape = tuple(-(-d // block) if i == axis else d for i, d in enumerate((rows, columns)))
    if scales.shape != shape:
        raise ShapeError(f"{ctx.label} has scales {list(scales.shape)} for {data.type}: expected {list(shape)}")
    codes = packed_codes(ctx, data, 0, rows, columns, bits) if is_packed else _as_bytes(ctx.const(0))
    if zeros is None:
        zero = np.array(1 << (bits - 1) if is_packed else 0, codes.dtype)
    elif is_packed:
        zero = unpack_bits(ctx.const(3).reshape(shape[0], -1), bits)[:, : shape[1]]
    else:
        zero = _as_bytes(ctx.const(3)).reshape(shape)
    held = matrix_of(ctx, 2, *shape) if axis == 1 else ctx.const(2)
    levels = QuantizedConstant(codes, held, zero, bits, axis, block)
    return ctx.gather(ctx.dequantised(levels, ctx.input(2).dtype), ctx.input(1), gathered)


def _as_bytes(q: Array) -> Array:
    """Convert integers below 8 bits to int8 or uint8."""
    return q.astype(np.uint8 if q.dtype.name.startswith("uint") else np.int8)


def packed_codes(
    ctx: NodeContext,
    packed: Value,
    i: int,
    rows: int,
    columns: int,
    bits: int,
    order: Callable[[Array], Array] | None = None,
) -> Array | LazyArray:
    """Unpack input `i` to uint8 [rows, columns], one number each; lazily by rows if it is in the model's file.

    order: function that moves the low bits first.
    """
    lines = matrix_of(ctx, i, rows, packed.type.count // max(1, rows))

    def numbers(held: Array) -> Array:
        return unpack_bits(held if order is None else order(held), bits)[:, :columns]

    if not isinstance(lines, LazyArray):
        return numbers(lines)

    def part(first: int, last: int) -> Array:
        return numbers(lines.read_rows(first, last))

    key = (lines.key, bits, columns, order)
    return LazyArray(np.dtype(np.uint8), (rows, columns), lambda: part(0, rows), load_rows=part, key=key)


def matrix_of(ctx: NodeContext, i: int, rows: int, columns: int) -> Array | LazyArray:
    """Return the constant input `i` as a matrix, without loading it."""
    v = ctx.input(i)
    held = v.lazy_data if v.is_const else ctx.const(i)
    assert held is not None
    return reshaped(held, (rows, columns)) if isinstance(held, LazyArray) else held.reshape(rows, columns)


def _permute_columns(codes: Array | LazyArray, order: Array) -> Array | LazyArray:
    """Permute columns, lazily if `codes` is lazy."""
    if not isinstance(codes, LazyArray):
        return np.ascontiguousarray(codes[:, order])

    def part(first: int, last: int) -> Array:
        return np.ascontiguousarray(codes.read_rows(first, last)[:, order])

    key = (codes.key, order.tobytes())
    return LazyArray(codes.dtype, codes.shape, lambda: part(0, codes.shape[0]), load_rows=part, key=key)


# Tables of bitsandbytes (Dettmers et al., QLoRA, 2023): quantiles of the normal distribution, and 4-bit floats.
_LOW = (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0)
_HIGH = (0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0)
_MAGNITUDES = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4, _FP4 = (*_LOW, *_HIGH), (*_MAGNITUDES, *(-v for v in _MAGNITUDES))


@onnx_op("MatMulBnb4", domain=MS)
def matmul_bnb4(ctx: NodeContext) -> Value:
    """Import MatMulBnb4: a times 4-bit weights, which index a table of values and are scaled per block."""
    a, rows, columns = ctx.input(0), ctx.attr("N", 0), ctx.attr("K", 0)
    block, table = ctx.attr("block_size", 64), _NF4 if ctx.attr("quant_type", 0) else _FP4
    packed, given, count = ctx.input(1), ctx.input(2), rows * columns
    if packed.type.count != -(-count // 2) or given.type.count < -(-count // block):
        raise ShapeError(f"{ctx.label} has weights {packed.shape}, magnitudes {given.shape} for N={rows}, K={columns}")
    by_rows = ctx.attr("transB", True)
    lines, along = (rows, columns) if by_rows else (columns, rows)
    if along % block or along % 2:  # blocks span rows
        flat = unpack_bits(_swap_nibbles(ctx.const(1).reshape(1, -1)), 4)[0, :count]
        scale = np.repeat(ctx.const(2).reshape(-1).astype(np.float32), block)[:count].reshape(lines, along)
        levels = QuantizedConstant(flat.reshape(lines, along), scale, None, 4, table=table)
    else:
        codes = packed_codes(ctx, packed, 1, lines, along, 4, _swap_nibbles)
        levels = QuantizedConstant(codes, matrix_of(ctx, 2, lines, along // block), None, 4, 1, block, table=table)
    return ctx.matmul(a, ctx.dequantised(levels, a.dtype), trans_b=by_rows)


def _swap_nibbles(packed: Array) -> Array:
    """Swap the halves of each byte, so that the low bits come first."""
    return packed >> 4 | packed << 4


def unpack_bits(packed: Array, bits: int) -> Array:
    """Unpack bytes [rows, n] to [rows, n * 8 / bits] numbers, low bits first."""
    each = 8 // bits
    if each == 1:
        return packed.astype(np.uint8, copy=False)
    out = np.empty((*packed.shape, each), np.uint8)
    for i in range(each):
        out[..., i] = (packed >> (i * bits)) & ((1 << bits) - 1)
    return out.reshape(packed.shape[0], -1)
