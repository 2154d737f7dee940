"""Importers of pooling, means, sums and resizing of quantised integers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ...ir.symbols import fixed
from ..walk.node_context import NodeContext
from .common import check_rank, quantized_op, to_channels_first, to_channels_last, unsupported
from .fixed_point import fixed_multiplier, rescale, rescale_wide
from .pool import pool_op
from .quantization import activation_ends, affine, out_affine

_FACTORS = 1024
"""Largest number of elements in one product: each is a step of its own."""


@quantized_op("AVERAGE_POOL_2D")
def average_pool_2d(ctx: NodeContext) -> Value:
    """Import AVERAGE_POOL_2D: sums of a window, exact in floats, by the elements in it; halves away from zero."""
    x, out = ctx.input(0), out_affine(ctx)
    check_rank(ctx, 4, x)
    op = replace(pool_op(ctx, x, "average"), count_include_pad=True)
    size, ends = math.prod(op.kernel), activation_ends(ctx, out)
    if size * (32768 if x.dtype is DType.INT16 else 255) >= 1 << 24:
        raise unsupported(ctx, f"has a window of {size} elements, too large for exact sums")

    def sums(v: Value) -> Value:
        means = ctx.add(op, [ctx.cast(v, DType.FLOAT32)])
        return ctx.elementwise(lambda m: (m * float(size)).call("rint").cast(DType.INT32), means)

    counts = ctx.constant(np.full((1, 1, 1, 1), size, np.int32))
    if any(op.pads):
        counts = sums(ctx.expand(ctx.constant(np.ones((1, 1, 1, 1), np.int8)), (1, 1, *x.shape[1:3])))

    def mean(a: Sym, n: Sym) -> Sym:
        half = n.call("shr", 1)
        whole = where(a < 0, a - half, a + half).call("div", n)
        return whole.call("max", ends[0]).call("min", ends[1]).cast(out.dtype)

    return to_channels_last(ctx, ctx.elementwise(mean, sums(to_channels_first(ctx, x)), counts))


@quantized_op("MAX_POOL_2D")
def max_pool_2d(ctx: NodeContext) -> Value:
    """Import MAX_POOL_2D: of the integers, whose scale the result has."""
    x, out = ctx.input(0), out_affine(ctx)
    check_rank(ctx, 4, x)
    first = to_channels_first(ctx, x)
    wide = ctx.cast(first, DType.FLOAT32) if x.dtype is DType.INT16 else first
    y = ctx.cast(ctx.add(pool_op(ctx, x, "max"), [wide]), x.dtype)
    low, high = activation_ends(ctx, out)
    if (low, high) != out.ends:
        y = ctx.elementwise(lambda v: v.call("max", low).call("min", high), y)
    return to_channels_last(ctx, y)


@quantized_op("MEAN", "SUM")
def mean_or_sum(ctx: NodeContext) -> Value:
    """Import MEAN and SUM: sums in int32, rescaled; the count of a mean is part of the multiplier."""
    x, a, out = ctx.input(0), affine(ctx, 0), out_affine(ctx)
    rank = len(x.shape)
    axes = sorted({int(i) % rank for i in ctx.const_ints(1)})
    count = math.prod(fixed(x.shape[i]) for i in axes)
    multiplier, shift = fixed_multiplier(float(a.scale) / float(out.scale))
    if ctx.op_type == "MEAN" and count:
        up = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << up) // count, shift - up
    sums = ctx.reduce(ctx.cast(x, DType.INT32), "sum", axes, bool(ctx.attr("keep_dims", False)))
    less = a.zero * count

    def stored(s: Sym) -> Sym:
        return out.stored(rescale(s - less if less else s, multiplier, shift))

    return ctx.elementwise(stored, sums)


@quantized_op("REDUCE_PROD")
def product(ctx: NodeContext) -> Value:
    """Import REDUCE_PROD: element by element, each product rescaled so that the last one has the result's scale."""
    x, a, out = ctx.input(0), affine(ctx, 0), out_affine(ctx)
    if x.dtype is DType.UINT8 or (x.dtype is DType.INT16 and (a.zero or out.zero)):
        raise unsupported(ctx, f"has {x.dtype} with the zero points {a.zero} and {out.zero}; int8, or 0, is expected")
    rank, keep = len(x.shape), bool(ctx.attr("keep_dims", False))
    axes = sorted({int(i) % rank for i in ctx.const_ints(1)})
    kept = [i for i in range(rank) if i not in axes]
    count = math.prod(fixed(x.shape[i]) for i in axes)
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape) if keep or i in kept)
    factor = float(a.scale) / float(out.scale) ** (1 / max(1, count))
    if factor >= 128 or count > _FACTORS:
        raise unsupported(ctx, f"multiplies {count} numbers by {factor:.4g} each; up to {_FACTORS}, by less than 128")
    rows = ctx.reshape(ctx.transpose(x, (*kept, *axes)), (*(x.shape[i] for i in kept), count))
    total = ctx.elementwise(a.centred, ctx.slice_axis(rows, len(kept), 0, 1))
    for k in range(1, count):
        total = ctx.elementwise(
            lambda t, v: rescale_wide(t.cast(DType.INT64) * a.centred(v).cast(DType.INT64), factor),
            *(total, ctx.slice_axis(rows, len(kept), k, k + 1)),
        )
    return ctx.reshape(ctx.elementwise(lambda t: out.stored(rescale_wide(t.cast(DType.INT64), factor)), total), shape)


@quantized_op("REDUCE_MAX", "REDUCE_MIN")
def extreme(ctx: NodeContext) -> Value:
    """Import REDUCE_MAX and REDUCE_MIN: of integers, whose scales are equal."""
    x, a, out = ctx.input(0), affine(ctx, 0), out_affine(ctx)
    if a != out:
        raise unsupported(ctx, "gives another scale than its operand's; the same is expected")
    axes = sorted({int(i) % len(x.shape) for i in ctx.const_ints(1)})
    kind = "max" if ctx.op_type == "REDUCE_MAX" else "min"
    y = ctx.reduce(ctx.cast(x, DType.INT32), kind, axes, bool(ctx.attr("keep_dims", False)))
    return ctx.cast(y, x.dtype)


@quantized_op("RESIZE_BILINEAR")
def resize_bilinear(ctx: NodeContext) -> Value:
    """Import RESIZE_BILINEAR: between rows, then columns.

    Signed integers have places and weights of 10 bits, halves away from zero; uint8 those of float32.
    """
    x, size = ctx.input(0), ctx.const_ints(1)
    check_rank(ctx, 4, x)
    ways = [bool(ctx.attr(name, False)) for name in ("align_corners", "half_pixel_centers")]
    is_float = x.dtype is DType.UINT8
    one, held = (1, DType.FLOAT32) if is_float else (1024, DType.INT64)
    y = ctx.cast(x, held)
    for axis, out in enumerate(size, 1):
        low, high, part = (_real_places if is_float else _places)(int(out), fixed(x.shape[axis]), *ways)
        weights = ctx.along_axis(ctx.constant(part.astype(held.np)), axis, 4)
        pair = [ctx.take(y, at, axis) for at in (low, high)]
        y = ctx.elementwise(lambda p, q, f: p * (one - f) + q * f, *pair, weights)

    def rounded(v: Sym) -> Sym:
        if is_float:
            return (v + 0.5).cast(DType.INT32).cast(x.dtype)
        return where(v > 0, v + (1 << 19), v - (1 << 19)).call("div", 1 << 20).cast(x.dtype)

    return ctx.elementwise(rounded, y)


def _real_places(out: int, size: int, corners: bool, centres: bool) -> tuple[Array, Array, Array]:
    """Return (element before, element after, part of the latter) for each result of an axis."""
    step = np.float32(size - 1) / np.float32(out - 1) if corners and out > 1 else np.float32(size) / np.float32(out)
    number = np.arange(out, dtype=np.float32)
    at = (number + np.float32(0.5)) * step - np.float32(0.5) if centres else number * step
    low = np.maximum(np.floor(at), 0).astype(np.int64)
    return low, np.clip(np.ceil(at), 0, size - 1).astype(np.int64), at - low


def _places(out: int, size: int, corners: bool, centres: bool) -> tuple[Array, Array, Array]:
    """Return (element before, element after, part of the latter in units of 1/1024) for each result of an axis."""
    step = (1024 * size + out // 2) // out
    if corners and out > 1:
        step = (1024 * (size - 1) + (out - 1) // 2) // (out - 1)
    at = np.arange(out, dtype=np.int64) * step + (step // 2 - 512 if centres else 0)
    # Both quotients are C's, toward zero.
    low = np.maximum(np.trunc(at / 1024), 0).astype(np.int64)
    high = np.minimum(np.trunc((at + 1023) / 1024), size - 1).astype(np.int64)
    return low, high, at - 1024 * low
