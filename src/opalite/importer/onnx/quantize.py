"""Quantisation: QuantizeLinear, DequantizeLinear and operators on 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from ...errors import UnsupportedOpError
from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ...ir.constants.lazy_array import converted
from ...ir.constants.quantized_constant import SMALLEST, QuantizedConstant
from ...ops.affine_quantization import dequantized
from ..microsoft.unfuse import channels_first, channels_last
from ..proto.decode import elem_dtype
from ..walk.node_context import NodeContext, Result, onnx_op
from .affine_quantization import broadcast_parameter, nonzero_zero_point, quantize, requantize
from .cast import FLOAT8
from .conv import integer_convolution
from .matmul import by_row_or_column, integer_product

_BITS = {DType.INT8: 8, DType.UINT8: 8, DType.INT4: 4, DType.UINT4: 4, DType.INT2: 2, DType.UINT2: 2}
"""Bit widths of integer types that stay quantised in products."""


@onnx_op("QuantizeLinear", since=10)
@onnx_op("QuantizeLinear", since=1, domain="com.microsoft")
def quantize_linear(ctx: NodeContext) -> Result:
    """Import QuantizeLinear: per tensor, per axis or per block.

    Types without device support (integers below 8 bits, small floats) are computed in wider types; the host narrows
    them.
    """
    x, scale, zero = ctx.input(0), _widen(ctx, ctx.input(1)), _widen(ctx, ctx.get(2))
    assert scale is not None
    code = ctx.attr("output_dtype", 0)
    held = ctx.input(2).dtype if zero is not None else elem_dtype(code) if code else DType.UINT8
    dtype = _wide(held)
    shape, axis, block = x.shape, ctx.attr("axis", 1), ctx.attr("block_size", 0)
    if zero is not None:
        _, zero = broadcast_parameter(ctx, zero, x, axis, block)
    x, scale = broadcast_parameter(ctx, scale, x, axis, block)
    precision = ctx.attr("precision", 0)
    if precision and elem_dtype(precision) is not DType.FLOAT32:
        kind = elem_dtype(precision)
        divided = ctx.elementwise(lambda v, s: v.cast(kind) / s.cast(kind), x, scale)
        x, scale = divided, ctx.scalar(1.0, DType.FLOAT32)
    if dtype.is_int:
        y = quantize(ctx, x, scale, zero, dtype)
        if dtype is not held:
            info = ml_dtypes.iinfo(held.np)
            y = ctx.elementwise(lambda q: q.call("max", int(info.min)).call("min", int(info.max)).cast(held), y)
        return ctx.reshape(y, shape)
    narrow = "saturate" if held in FLOAT8 and ctx.attr("saturate", 1) else "cast"
    zeros = [] if zero is None or held in FLOAT8 else [zero]  # 8-bit floats allow no zero point but 0
    real = ctx.elementwise(lambda v, s, *z: sum(z, v.cast(dtype) / s.cast(dtype)), x, scale, *zeros)
    return ctx.reshape(ctx.elementwise(lambda v: v.typed(narrow, held), real), shape)


@onnx_op("DequantizeLinear", since=10)
@onnx_op("DequantizeLinear", since=1, domain="com.microsoft")
def dequantize_linear(ctx: NodeContext) -> Result:
    """Import DequantizeLinear: per tensor, axis or block; constants of types without device support are widened."""
    kept = _quantized_constant(ctx)
    if kept is not None:
        return kept
    x, scale, zero = (_widen(ctx, v) for v in (ctx.input(0), ctx.input(1), ctx.get(2)))
    assert x is not None
    assert scale is not None
    code = ctx.attr("output_dtype", 0)
    dtype = elem_dtype(code) if code else ctx.input(1).dtype
    if not (scale.dtype.is_float and dtype.is_float):
        raise UnsupportedOpError(f"{ctx.label} gives {dtype} by a scale of {ctx.input(1).type}; both must be floats")
    shape, axis, block = x.shape, ctx.attr("axis", 1), ctx.attr("block_size", 0)
    zero = nonzero_zero_point(zero)
    if zero is not None:
        _, zero = broadcast_parameter(ctx, zero, x, axis, block)
    x, scale = broadcast_parameter(ctx, scale, x, axis, block)

    def real(q: Sym, s: Sym, z: Sym | None) -> Sym:
        if z is not None and q.dtype.is_float:
            q, z = q - z, None
        return dequantized(q, s, z).cast(dtype)

    y = ctx.reshape(ctx.elementwise(real, x, scale, zero), shape)
    if y.data is not None and x.data is not None and scale.data is not None and x.shape == shape:
        y.quantized = QuantizedConstant(x.data, scale.data, None if zero is None else zero.data)
    return y


def _quantized_constant(ctx: NodeContext) -> Value | None:
    """Return a large constant that is dequantised on access and stays quantised in products; None for other inputs."""
    x, scale, zero = ctx.input(0), ctx.input(1), ctx.get(2)
    code = ctx.attr("output_dtype", 0)
    dtype = elem_dtype(code) if code else scale.dtype
    held, bits = x.lazy_data, _BITS.get(x.dtype)
    if held is None or bits is None or x.type.count < SMALLEST or len(x.shape) != 2:
        return None
    if scale.data is None or not scale.dtype.is_float or not dtype.is_float or (zero is not None and zero.data is None):
        return None
    axis, block = ctx.axis_of(2, 1), ctx.attr("block_size", 0)
    zero = nonzero_zero_point(zero)
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
    return ctx.dequantised(QuantizedConstant(converted(held, narrow), parts[0], less, bits, axis, block), dtype)


def _widen(ctx: NodeContext, v: Value | None) -> Value | None:
    """Widen an integer below 8 bits to int8 or uint8, and a small float to float32."""
    if v is None or v.dtype.on_device:
        return v
    return ctx.constant(v.data.astype(_wide(v.dtype).np)) if v.data is not None else ctx.cast(v, _wide(v.dtype))


def _wide(dtype: DType) -> DType:
    """Return a device dtype that represents all numbers of `dtype`."""
    if dtype.on_device or not dtype.name.startswith(("INT", "UINT", "FLOAT")):
        return dtype
    return DType.FLOAT32 if dtype.name.startswith("FLOAT") else DType.parse("u8" if dtype.name[0] == "U" else "i8")


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(ctx: NodeContext) -> Sequence[Value]:
    """Import DynamicQuantizeLinear: uint8 of x with scale and zero point from its range, which always includes 0."""
    return dynamic_quantize(ctx, ctx.input(0))


def dynamic_quantize(ctx: NodeContext, x: Value) -> tuple[Value, Value, Value]:
    """Return (q, scale, zero point): scale = (max - min) / 255, or 1 for zeros; zero = saturate(rint(-min / scale))."""
    axes = range(len(x.shape))
    low = ctx.reduce(x, "min", axes, keepdims=False)
    high = ctx.reduce(x, "max", axes, keepdims=False)

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
    """Import QLinearConv: 8-bit convolution, exact in int32, then rescaled; weight scales per tensor or output channel.

    With com.microsoft's attribute channels_last, x and the result have channels last; weights do not change.
    """
    last = ctx.attr("channels_last", False)
    x, w = channels_first(ctx, ctx.input(0)) if last else ctx.input(0), ctx.input(3)
    bias = ctx.get(8)
    acc = integer_convolution(ctx, x, w, bias, ctx.get(2), ctx.get(5))
    rank = len(acc.shape)
    factors = [ctx.reshape(ctx.input(1), ()), ctx.along_axis(ctx.input(4), 1, rank)]
    y_zero = ctx.get(7)
    dtype = x.dtype if y_zero is None else y_zero.dtype
    if y_zero is not None:
        y_zero = ctx.reshape(y_zero, ())
    y = requantize(ctx, acc, factors, ctx.reshape(ctx.input(6), ()), y_zero, dtype)
    return channels_last(ctx, y) if last else y


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(ctx: NodeContext) -> Result:
    """Import QLinearMatMul: matrix product of 8-bit integers, exact in int32, then rescaled."""
    a, b = ctx.input(0), ctx.input(3)
    y_zero = ctx.input(7)
    if not (a.dtype.is_int and b.dtype.is_int):
        return ctx.host()
    acc = integer_product(ctx, a, b, ctx.get(2), ctx.get(5))
    factors = [by_row_or_column(ctx, ctx.input(1), True), by_row_or_column(ctx, ctx.input(4), False)]
    scale, zero = by_row_or_column(ctx, ctx.input(6), True), by_row_or_column(ctx, y_zero, True)
    return requantize(ctx, acc, factors, scale, zero, y_zero.dtype)
