"""Quantisation: QuantizeLinear, DequantizeLinear and the operators on 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr.trace import Sym, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.levels import SMALLEST, Levels
from ...ir.stored import converted
from ...ops.affine import dequantized
from ...ops.base import normalize_axis
from ..microsoft.fused import channels_first, channels_last
from ..proto.decode import elem_dtype
from ..registry import onnx_op
from ..shared.helpers import along_axis, reduce
from ..shared.quantization import plain_zero, quantize, requantize, spread
from ..walk.context import NodeContext
from .conv import integer_convolution
from .matmul import by_row_or_column, integer_product

Result = Value | Sequence[Value | None]
Array = np.ndarray[Any, Any]

_BITS = {DType.INT8: 8, DType.UINT8: 8, DType.INT4: 4, DType.UINT4: 4, DType.INT2: 2, DType.UINT2: 2}
"""Widths of the integers whose products keep them."""


@onnx_op("QuantizeLinear", since=10)
@onnx_op("QuantizeLinear", since=1, domain="com.microsoft")
def quantize_linear(ctx: NodeContext) -> Result:
    """Per tensor, per axis or per block; types of fewer than 8 bits and 8-bit floats are the host's."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.get(2)
    code = int(ctx.attr("output_dtype", 0))
    dtype = zero.dtype if zero is not None else elem_dtype(code) if code else DType.UINT8
    if not (dtype.is_int and scale.dtype.is_float and x.dtype.on_device):
        return ctx.host()
    shape, axis, block = x.shape, int(ctx.attr("axis", 1)), int(ctx.attr("block_size", 0))
    if zero is not None:
        _, zero = spread(ctx, zero, x, axis, block)
    x, scale = spread(ctx, scale, x, axis, block)
    precision = int(ctx.attr("precision", 0))
    if precision and elem_dtype(precision) is not DType.FLOAT32:
        kind = elem_dtype(precision)
        divided = ctx.elementwise(lambda v, s: v.cast(kind) / s.cast(kind), x, scale)
        x, scale = divided, ctx.scalar(1.0, DType.FLOAT32)
    return ctx.reshape(quantize(ctx, x, scale, zero, dtype), shape)


@onnx_op("DequantizeLinear", since=10)
@onnx_op("DequantizeLinear", since=1, domain="com.microsoft")
def dequantize_linear(ctx: NodeContext) -> Result:
    """Per tensor, per axis or per block; constants of types that devices lack are widened exactly."""
    kept = _kept(ctx)
    if kept is not None:
        return kept
    x, scale, zero = (_widened(ctx, v) for v in (ctx.input(0), ctx.input(1), ctx.get(2)))
    assert x is not None
    assert scale is not None
    code = int(ctx.attr("output_dtype", 0))
    dtype = elem_dtype(code) if code else ctx.input(1).dtype
    if not (x.dtype.on_device and scale.dtype.is_float and dtype.is_float):
        return ctx.host()
    shape, axis, block = x.shape, int(ctx.attr("axis", 1)), int(ctx.attr("block_size", 0))
    zero = plain_zero(zero)
    if zero is not None:
        _, zero = spread(ctx, zero, x, axis, block)
    x, scale = spread(ctx, scale, x, axis, block)

    def real(q: Sym, s: Sym, *z: Sym) -> Sym:
        return dequantized(q, s, z[0] if z else None).cast(dtype)

    y = ctx.reshape(ctx.elementwise(real, x, scale, *([zero] if zero is not None else [])), shape)
    if y.data is not None and x.data is not None and scale.data is not None and x.shape == shape:
        y.levels = Levels(x.data, scale.data, None if zero is None else zero.data)
    return y


def _kept(ctx: NodeContext) -> Value | None:
    """A large constant, which is computed when it is read and knows its integers; None for anything else."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.get(2)
    code = int(ctx.attr("output_dtype", 0))
    dtype = elem_dtype(code) if code else scale.dtype
    held, bits = x.held, _BITS.get(x.dtype)
    if held is None or bits is None or x.type.count < SMALLEST or len(x.shape) != 2:
        return None
    if scale.data is None or not scale.dtype.is_float or not dtype.is_float or (zero is not None and zero.data is None):
        return None
    axis, block = normalize_axis(int(ctx.attr("axis", 1)), 2), int(ctx.attr("block_size", 0))
    zero = plain_zero(zero)
    parts: list[Array] = []
    for part in (scale.data, *([] if zero is None or zero.data is None else [zero.data])):
        if part.size == 1:
            part = part.reshape(())
        elif part.ndim == 1 and not block:
            if part.size != x.shape[axis]:
                return None
            part = part.reshape(-1, 1) if axis == 0 else part
        elif part.ndim == 2 and part.shape[1 - axis] == x.shape[1 - axis]:
            block = block or -(-x.shape[axis] // max(1, part.shape[axis]))
            if part.shape[axis] != -(-x.shape[axis] // block):
                return None
        else:
            return None
        parts.append(part)
    narrow = np.dtype(np.uint8 if x.dtype.name.startswith("UINT") else np.int8)
    less = parts[1].astype(narrow) if len(parts) > 1 else None
    return ctx.dequantised(Levels(converted(held, narrow), parts[0], less, bits, axis, block), dtype)


def _widened(ctx: NodeContext, v: Value | None) -> Value | None:
    """A constant integer of fewer than 8 bits as int8 or uint8, a small float as float32; anything else as it is."""
    if v is None or v.data is None or v.dtype.on_device:
        return v
    name = v.dtype.name
    wide = np.uint8 if name.startswith("UINT") else np.int8 if name.startswith("INT") else np.float32
    return ctx.constant(v.data.astype(wide)) if name.startswith(("INT", "UINT", "FLOAT")) else v


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(ctx: NodeContext) -> Sequence[Value]:
    """uint8 of x with scale and zero point from its own range, which always holds 0."""
    return dynamic_quantize(ctx, ctx.input(0))


def dynamic_quantize(ctx: NodeContext, x: Value) -> tuple[Value, Value, Value]:
    """(q, scale, zero point): scale = (max - min) / 255, or 1 of zeros alone, zero = saturate(rint(-min / scale))."""
    axes = range(len(x.shape))
    low = reduce(ctx, x, "min", axes, keepdims=False)
    high = reduce(ctx, x, "max", axes, keepdims=False)

    def step(lo: Sym, hi: Sym) -> Sym:
        span = (hi.call("max", 0) - lo.call("min", 0)) / 255.0
        return where(span.eq(0), 1.0, span)

    scale = ctx.elementwise(step, low, high)
    zero = ctx.elementwise(
        lambda lo, s: (-lo.call("min", 0) / s).call("rint").typed("saturate", DType.UINT8), low, scale
    )
    return quantize(ctx, x, scale, zero, DType.UINT8), scale, zero


@onnx_op("QLinearConv", since=10)
@onnx_op("QLinearConv", since=1, domain="com.microsoft")
def qlinear_conv(ctx: NodeContext) -> Result:
    """Convolution of 8-bit integers, exact in int32, then rescaled; weights have one scale or one by output channel.

    With the attribute channels_last of com.microsoft, x and the result have their channels last, weights as ever.
    """
    last = bool(ctx.attr("channels_last", 0))
    x, w = channels_first(ctx, ctx.input(0)) if last else ctx.input(0), ctx.input(3)
    bias = ctx.get(8)
    acc = integer_convolution(ctx, x, w, bias, ctx.get(2), ctx.get(5))
    rank = len(acc.shape)
    factors = [ctx.reshape(ctx.input(1), ()), along_axis(ctx, ctx.input(4), 1, rank)]
    y_zero = ctx.get(7)
    dtype = x.dtype if y_zero is None else y_zero.dtype
    if y_zero is not None:
        y_zero = ctx.reshape(y_zero, ())
    y = requantize(ctx, acc, factors, ctx.reshape(ctx.input(6), ()), y_zero, dtype)
    return channels_last(ctx, y) if last else y


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(ctx: NodeContext) -> Result:
    """Matrix product of 8-bit integers, exact in int32, then rescaled."""
    a, b = ctx.input(0), ctx.input(3)
    y_zero = ctx.input(7)
    if not (a.dtype.is_int and b.dtype.is_int):
        return ctx.host()
    acc = integer_product(ctx, a, b, ctx.get(2), ctx.get(5))
    factors = [by_row_or_column(ctx, ctx.input(1), True), by_row_or_column(ctx, ctx.input(4), False)]
    scale, zero = by_row_or_column(ctx, ctx.input(6), True), by_row_or_column(ctx, y_zero, True)
    return requantize(ctx, acc, factors, scale, zero, y_zero.dtype)
