"""Importers of convolutions and matrix products of quantised integers, and of floats by 8-bit constants.

Sums are exact in int32, and the result is scaled by a fixed-point multiplier. A 16-bit operand is cut into its signed
upper and its unsigned lower byte, which are two products of bytes, joined in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ...ir.symbols import fixed
from ...ops.integer_conv_matmul import BYTES, IntegerConv
from ..walk.node_context import NodeContext
from .common import activated, quantized_op, tensors_of, to_channels_first, to_channels_last, unsupported, window_pads
from .conv import transpose_conv as float_transpose_conv
from .fixed_point import fixed_multiplier, fixed_multiplier_16, rescale, rounded_away
from .quantization import Affine, activation_ends, affine, out_affine, quantization, rescaled, rescaled_once
from .quantized_weights import read_weights_as_floats

_INT32 = 2
"""Number of the element type in the schema: sums of such products are scaled in 32 bits."""

Product = Callable[[Value, Value | None, Value | None], Value]
"""(8-bit operand, its zero point, bias) -> sums in int32."""


Rescale = Callable[[NodeContext, Value, Array, int, Affine, tuple[int, int]], Value]
"""`rescaled` or `rescaled_once`."""


@dataclass(frozen=True)
class Weights:
    """An operand of bytes with its scales and zero points, whole or along an axis."""

    value: Value
    scales: Array
    zero: Value | None


def weights_of(ctx: NodeContext, i: int) -> Weights:
    """Return input `i` as bytes; integers of fewer bits are widened."""
    w, levels = ctx.input(i), quantization(ctx, i)
    if w.dtype not in BYTES:
        if w.data is None or w.dtype.np.itemsize > 1:
            raise unsupported(ctx, f"has {w.dtype} for input {i}; constant integers of 8 bits or fewer are expected")
        w = ctx.constant(w.data.astype(np.int8))
    zeros = np.unique(levels.zero_point)
    if zeros.size > 1:
        raise unsupported(ctx, f"has several zero points for the channels of input {i}; one is expected")
    return Weights(w, levels.scale.astype(np.float32), zero_value(ctx, int(zeros[0]), w.dtype))


def zero_value(ctx: NodeContext, zero: int, dtype: DType) -> Value | None:
    """Return a zero point as an operand; None for 0."""
    return ctx.constant(np.asarray(zero, dtype.np)) if zero else None


def product_factors(x: Affine, scales: Array, out: Affine) -> Array:
    """Return the real factors from sums to the result, in float64: one, or one for each channel."""
    if scales.size == 1 and x.dtype is DType.UINT8:
        return np.array([float(x.scale * scales[0]) / float(out.scale)])
    return float(x.scale) * scales.astype(np.float64) / float(out.scale)


def quantized_sums(
    ctx: NodeContext,
    x: Value,
    given: Affine,
    factors: Array,
    axis: int,
    bias: Value | None,
    multiply: Product,
    rescale_sums: Rescale = rescaled,
) -> Value:
    """Return the scaled sums of a product with a quantised operand. axis: of the result's channels."""
    out = out_affine(ctx)
    ends = activation_ends(ctx, out)
    if given.dtype is not DType.INT16:
        acc = multiply(x, zero_value(ctx, given.zero, given.dtype), bias)
        return rescale_sums(ctx, acc, factors, axis, out, ends)
    if given.zero:
        raise unsupported(ctx, f"has the zero point {given.zero} for int16; 0 is expected")
    high = ctx.elementwise(lambda v: v.call("shr", 8).cast(DType.INT8), x)
    low = ctx.elementwise(lambda v: v.call("bitand", 255).cast(DType.UINT8), x)
    return rescaled_wide(ctx, [(multiply(high, None, None), 8), (multiply(low, None, None), 0)], factors, axis, bias)


def rescaled_wide(
    ctx: NodeContext, parts: Sequence[tuple[Value, int]], factors: Array, axis: int, bias: Value | None
) -> Value:
    """Return the sum of parts * 2^bits and a bias, in int64, times factors of 16 bits, as elements of the result."""
    out = out_affine(ctx)
    ends = activation_ends(ctx, out)
    rank = len(parts[0][0].shape)
    wide = ctx.attr("quantized_bias_type", 0) != _INT32
    pairs = np.array([(fixed_multiplier_16 if wide else fixed_multiplier)(float(f)) for f in factors], np.int64)
    constants = [ctx.along_axis(ctx.constant(a), axis, rank) for a in (pairs[:, 0].copy(), pairs[:, 1].copy())]
    more = None if bias is None else ctx.along_axis(bias, axis, rank)

    def scaled_sum(m: Sym, s: Sym, b: Sym | None, *sums: Sym) -> Sym:
        total = sums[0].cast(DType.INT64).call("shl", parts[0][1])
        for v, (_, bits) in zip(sums[1:], parts[1:], strict=True):
            total = total + v.cast(DType.INT64).call("shl", bits)
        if b is not None:
            total = total + b.cast(DType.INT64)
        if not wide:
            whole = rescale(total.cast(DType.INT32), m.cast(DType.INT32), s.cast(DType.INT32))
        else:
            half = (m * 0 + 1).call("shl", s - 1)
            whole = (total * m + half).call("shr", s).cast(DType.INT32)
        return out.stored(whole, ends)

    return ctx.elementwise(scaled_sum, *constants, more, *(v for v, _ in parts))


# Convolutions


def _convolution(ctx: NodeContext, x: Value, w: Weights, group: int, bias: Value | None) -> Value:
    """Return the convolution of x[N,H,W,C] by filters [M,C/group,h,w], by the node's options."""
    strides = (ctx.attr("stride_h", 1), ctx.attr("stride_w", 1))
    dilations = (ctx.attr("dilation_h_factor", 1), ctx.attr("dilation_w_factor", 1))
    pads = window_pads(ctx, x.shape[1:3], w.value.shape[2:], strides, dilations)
    op = IntegerConv(strides, pads, dilations, group)

    def multiply(v: Value, zero: Value | None, b: Value | None) -> Value:
        return ctx.add(op, [v, w.value, b, zero, w.zero])

    first = to_channels_first(ctx, x)
    if x.dtype is DType.FLOAT32:
        return to_channels_last(ctx, activated(ctx, _hybrid_convolution(ctx, first, w, bias, multiply)))
    given = affine(ctx, 0)
    factors = product_factors(given, w.scales, out_affine(ctx))
    return to_channels_last(ctx, quantized_sums(ctx, first, given, factors, 1, bias, multiply))


def _hybrid_convolution(ctx: NodeContext, x: Value, w: Weights, bias: Value | None, multiply: Product) -> Value:
    """Return the convolution of floats in channels first, rounded to bytes image by image.

    With one scale of the filters zero is 0, with several it is where the image's range has it: then it is subtracted
    as a second, constant, convolution of the zero point.
    """
    each = len(x.shape) - 1
    levels = quantized_rows(ctx, x, each, asymmetric=w.scales.size > 1 or ctx.op_type == "DEPTHWISE_CONV_2D")
    acc = multiply(levels.q, None, None)
    if levels.zero is not None:
        ones = ctx.expand(ctx.constant(np.ones((1, 1, 1, 1), np.int8)), (1, *x.shape[1:]))
        acc = ctx.elementwise(lambda a, n, z: a - n * z.cast(DType.INT32), acc, multiply(ones, None, None), levels.zero)
    return rescaled_floats(ctx, acc, levels, w, 1, bias)


@quantized_op("CONV_2D")
def conv_2d(ctx: NodeContext) -> Value:
    """Import CONV_2D: x[N,H,W,C] by filters [M,h,w,C/group]."""
    x, w = ctx.input(0), weights_of(ctx, 1)
    if len(x.shape) != 4 or len(w.value.shape) != 4 or not w.value.shape[3] or x.shape[3] % w.value.shape[3]:
        raise ShapeError(f"{ctx.label} has filters {w.value.type} for {x.type}: channels must be a multiple")
    first = Weights(ctx.transpose(w.value, (0, 3, 1, 2)), w.scales, w.zero)
    return _convolution(ctx, x, first, x.shape[3] // w.value.shape[3], ctx.get(2))


@quantized_op("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(ctx: NodeContext) -> Value:
    """Import DEPTHWISE_CONV_2D: x[N,H,W,C] by filters [1,h,w,C*multiplier]."""
    x, w = ctx.input(0), weights_of(ctx, 1)
    if len(x.shape) != 4 or len(w.value.shape) != 4 or w.value.shape[3] % x.shape[3]:
        raise ShapeError(f"{ctx.label} has filters {w.value.type} for {x.type}: channels must be a multiple")
    first = Weights(ctx.transpose(w.value, (3, 0, 1, 2)), w.scales, w.zero)
    return _convolution(ctx, x, first, x.shape[3], ctx.get(2))


@quantized_op("TRANSPOSE_CONV")
def transpose_conv(ctx: NodeContext) -> Value:
    """Import TRANSPOSE_CONV: a convolution by the turned filters of x[N,H,W,C] with zeros between its elements."""
    if ctx.input(2).dtype is DType.FLOAT32:
        read_weights_as_floats(ctx)
        return float_transpose_conv(ctx)
    x, w, size = ctx.input(2), weights_of(ctx, 1), ctx.const_ints(0)
    if len(x.shape) != 4 or len(w.value.shape) != 4 or len(size) != 4:
        raise ShapeError(
            f"{ctx.label} has filters {w.value.type} for {x.type} and the size {size}: 4 axes are expected"
        )
    given, kernel = affine(ctx, 2), w.value.shape[1:3]
    strides = (ctx.attr("stride_h", 1), ctx.attr("stride_w", 1))
    pads = window_pads(ctx, size[1:3], kernel, strides, (1, 1))
    turned = ctx.transpose(w.value, (0, 3, 1, 2))
    turned = ctx.take(ctx.take(turned, np.arange(kernel[0])[::-1], 2), np.arange(kernel[1])[::-1], 3)
    spread = _spread(ctx, to_channels_first(ctx, x), strides, given.zero)
    begins = [k - 1 - p for k, p in zip(kernel, pads[:2], strict=True)]
    ends = [o - i - b + k - 1 for o, i, b, k in zip(size[1:3], spread.shape[2:], begins, kernel, strict=True)]
    op = IntegerConv((1, 1), tuple(max(0, p) for p in (*begins, *ends)), (1, 1), 1)

    def multiply(v: Value, zero: Value | None, b: Value | None) -> Value:
        y = ctx.add(op, [v, turned, b, zero, w.zero])
        for axis, (first, wanted) in enumerate(zip(begins, size[1:3], strict=True), 2):
            cut = max(0, -first)
            y = ctx.slice_axis(y, axis, cut, cut + wanted)
        return y

    factors = product_factors(given, w.scales, out_affine(ctx))
    return to_channels_last(ctx, quantized_sums(ctx, spread, given, factors, 1, ctx.get(3), multiply))


def _spread(ctx: NodeContext, x: Value, strides: Sequence[int], zero: int) -> Value:
    """Return x[N,C,H,W] with stride - 1 zero points between adjacent elements."""
    n, c, h, w = x.shape
    sh, sw = strides
    if sh == sw == 1:
        return x
    apart = ctx.reshape(x, (n, c, h, 1, w, 1))
    apart = ctx.pad_zeros(apart, (0,) * 9 + (sh - 1, 0, sw - 1), zero)
    joined = ctx.reshape(apart, (n, c, h * sh, w * sw))
    return ctx.slice_axis(ctx.slice_axis(joined, 2, 0, (h - 1) * sh + 1), 3, 0, (w - 1) * sw + 1)


# Matrix products


@quantized_op("FULLY_CONNECTED")
def fully_connected(ctx: NodeContext) -> Value:
    """Import FULLY_CONNECTED: rows of x by the rows of w[N,K]."""
    x, w, bias = ctx.input(0), weights_of(ctx, 1), ctx.get(2)
    if len(w.value.shape) != 2 or not w.value.shape[1]:
        raise ShapeError(f"{ctx.label} has weights {w.value.type}; a matrix is expected")
    n, k = w.value.shape
    rows = ctx.reshape(x, (x.type.count // k, k))

    def multiply(v: Value, zero: Value | None, b: Value | None) -> Value:
        acc = ctx.matmul(v, w.value, trans_b=True, zeros=(zero, w.zero))
        return acc if b is None else ctx.plus(acc, b)

    if x.dtype is DType.FLOAT32:
        y = activated(ctx, _hybrid_rows(ctx, rows, w, bias, multiply))
    else:
        given = affine(ctx, 0)
        factors = product_factors(given, w.scales, out_affine(ctx))
        y = quantized_sums(ctx, rows, given, factors, 1, bias, multiply, rescaled_once)
    return ctx.reshape(y, (*x.shape[:-1], n)) if ctx.attr("keep_num_dims", False) else y


def _hybrid_rows(ctx: NodeContext, x: Value, w: Weights, bias: Value | None, multiply: Product) -> Value:
    """Return the product of float rows, each rounded to bytes, with a constant."""
    levels = quantized_rows(ctx, x, 1, asymmetric=bool(ctx.attr("asymmetric_quantize_inputs", False)))
    acc = multiply(levels.q, None, None)
    if levels.zero is not None:
        ones = ctx.constant(np.ones((1, fixed(x.shape[-1])), np.int8))
        sums = multiply(ones, None, None)
        acc = ctx.elementwise(lambda a, n, z: a - n * z.cast(DType.INT32), acc, sums, levels.zero)
    return rescaled_floats(ctx, acc, levels, w, len(x.shape) - 1, bias)


@quantized_op("BATCH_MATMUL")
def batch_matmul(ctx: NodeContext) -> Value:
    """Import BATCH_MATMUL: a by b, either transposed."""
    a, b = ctx.input(0), ctx.input(1)
    if ctx.attr("adj_x", False):
        a = ctx.swap_axes(a, len(a.shape) - 2, len(a.shape) - 1)
    turned = bool(ctx.attr("adj_y", False))
    if a.dtype is DType.FLOAT32:
        w = weights_of(ctx, 1)

        def multiply(v: Value, zero: Value | None, _: Value | None) -> Value:
            return ctx.matmul(v, w.value, trans_b=turned, zeros=(zero, w.zero))

        return _hybrid_rows(ctx, a, w, None, multiply)
    if tensors_of(ctx).outputs[0].dtype is DType.INT32:
        return ctx.matmul(a, b, trans_b=turned, zeros=(None, None))  # LiteRT leaves zero points and scales to others
    x, y, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    factors = np.array([float(x.scale * y.scale) / float(out.scale)])
    if a.dtype is not DType.INT16:
        zeros = (zero_value(ctx, x.zero, x.dtype), zero_value(ctx, y.zero, y.dtype))
        acc = ctx.matmul(a, b, trans_b=turned, zeros=zeros)
        return rescaled(ctx, acc, factors, 0, out, out.ends)
    if x.zero or y.zero:
        raise unsupported(ctx, f"has the zero points {x.zero} and {y.zero} for int16; 0 is expected")
    parts = []
    for left, up in _bytes(ctx, a):
        for right, more in _bytes(ctx, b):
            parts.append((ctx.matmul(left, right, trans_b=turned, zeros=(None, None)), up + more))
    return rescaled_wide(ctx, parts, factors, 0, None)


def _bytes(ctx: NodeContext, x: Value) -> list[tuple[Value, int]]:
    """Return the bytes of an operand with the bits that each is to be shifted by."""
    if x.dtype is not DType.INT16:
        return [(x, 0)]
    high = ctx.elementwise(lambda v: v.call("shr", 8).cast(DType.INT8), x)
    return [(high, 8), (ctx.elementwise(lambda v: v.call("bitand", 255).cast(DType.UINT8), x), 0)]


# Floats by bytes


@dataclass(frozen=True)
class Levels:
    """Floats rounded to bytes; scale and zero point of each row, or of each image."""

    q: Value
    scale: Value
    zero: Value | None


def quantized_rows(ctx: NodeContext, x: Value, axes: int, asymmetric: bool) -> Levels:
    """Return x in bytes, with one scale over its last `axes` axes: from -127 to 127, or with a zero point."""
    over = list(range(len(x.shape) - axes, len(x.shape)))
    most, least = ctx.reduce(x, "max", over), ctx.reduce(x, "min", over)
    if not asymmetric:
        span = ctx.elementwise(lambda a, b: a.call("abs").call("max", b.call("abs")), most, least)
        scale = ctx.elementwise(lambda r: where(r.eq(0), 1.0, r / 127.0), span)

        def bytes_of(v: Sym, r: Sym) -> Sym:
            inverse = where(r.eq(0), 0.0, 127.0 / r)
            return rounded_away(v * inverse).call("max", -127).call("min", 127).cast(DType.INT8)

        return Levels(ctx.elementwise(bytes_of, x, span), scale, None)

    def step(a: Sym, b: Sym) -> Sym:
        r = a.call("max", 0) - b.call("min", 0)
        return where(r.eq(0), 1.0, r / 255.0)

    def zero_of(a: Sym, b: Sym, s: Sym) -> Sym:
        high, low = a.call("max", 0) / s, b.call("min", 0) / s
        # From whichever end is nearer to zero.
        z = where(low.call("abs") + 128.0 < high.call("abs") + 127.0, -low - 128.0, 127.0 - high)
        z = rounded_away(z.call("max", -128).call("min", 127))
        return where(s.eq(1.0).call("and", a.eq(b)), 0.0, z)

    scale = ctx.elementwise(step, most, least)
    zero = ctx.elementwise(zero_of, most, least, scale)

    def shifted(v: Sym, s: Sym, z: Sym) -> Sym:
        return rounded_away(z + v * (1.0 / s)).call("max", -128).call("min", 127).cast(DType.INT8)

    return Levels(ctx.elementwise(shifted, x, scale, zero), scale, zero)


def rescaled_floats(ctx: NodeContext, acc: Value, levels: Levels, w: Weights, axis: int, bias: Value | None) -> Value:
    """Return int32 sums times both scales, plus a bias along `axis`."""
    rank = len(acc.shape)
    scales = ctx.along_axis(ctx.constant(w.scales), axis, rank)
    more = None if bias is None else ctx.along_axis(bias, axis, rank)

    def real(a: Sym, s: Sym, f: Sym, b: Sym | None) -> Sym:
        y = a.cast(DType.FLOAT32) * (s * f)
        return y if b is None else y + b

    return ctx.elementwise(real, acc, levels.scale, scales, more)
