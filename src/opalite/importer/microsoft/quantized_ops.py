"""Quantized operators of domain com.microsoft: dequantize, compute, quantize; in one expression if elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ...ir.symbols import fixed
from ...ops.affine_quantization import dequantized
from ..onnx.activation import leaky_relu
from ..onnx.affine_quantization import Quantized, nonzero_zero_point, quantize, quantized_elementwise, requantize
from ..onnx.conv import pool
from ..onnx.matmul import integer_product, scale_and_add
from ..onnx.quantize import dynamic_quantize
from ..onnx.recurrent import recurrent
from ..walk.emitter import positive_axes
from ..walk.node_context import NodeContext, Result, onnx_op
from .attention import attend_projection
from .unfuse import MS, channels_first, channels_last, embed_and_normalize


def _quantized(ctx: NodeContext, at: int) -> Quantized:
    """Return the tensor, scale and zero point in inputs `at`, `at` + 1 and `at` + 2; both per tensor."""
    zero = ctx.get(at + 2)
    return Quantized(ctx.input(at), ctx.reshape(ctx.input(at + 1), ()), None if zero is None else ctx.reshape(zero, ()))


def _result(ctx: NodeContext, at: int) -> tuple[Value, Value | None]:
    """Return scale and zero point of the result in inputs `at` and `at` + 1."""
    zero = ctx.get(at + 1)
    return ctx.reshape(ctx.input(at), ()), None if zero is None else ctx.reshape(zero, ())


def _by_element(ctx: NodeContext, fn: Callable[..., Sym], count: int) -> Value:
    """Apply fn to `count` quantised operands; the inputs after them quantise the result."""
    operands = [_quantized(ctx, 3 * i) for i in range(count)]
    scale, zero = _result(ctx, 3 * count)
    return quantized_elementwise(ctx, fn, operands, scale, zero, operands[0].value.dtype)


@onnx_op("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_arithmetic(ctx: NodeContext) -> Value:
    """Import QLinearAdd and QLinearMul: a + b or a * b."""
    return _by_element(ctx, (lambda a, b: a + b) if ctx.op_type == "QLinearAdd" else (lambda a, b: a * b), 2)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", domain=MS)
def qlinear_activation(ctx: NodeContext) -> Value:
    """Import QLinearSigmoid, 1 / (1 + exp(-x)), and QLinearLeakyRelu, x if x >= 0, else alpha * x."""
    alpha = ctx.attr("alpha", 0.01)
    is_sigmoid = ctx.op_type == "QLinearSigmoid"
    return _by_element(ctx, lambda x: x.call("sigmoid") if is_sigmoid else leaky_relu(x, alpha), 1)


@onnx_op("QLinearWhere", domain=MS)
def qlinear_where(ctx: NodeContext) -> Value:
    """Import QLinearWhere: x if the condition is true, else y, both requantised to the result's scale."""
    scale, zero = _result(ctx, 7)
    x, y = (_requantized(ctx, _quantized(ctx, at), scale, zero) for at in (1, 4))
    return ctx.elementwise(lambda c, a, b: where(c, a, b), ctx.cast(ctx.input(0), DType.BOOL), x, y)


def _requantized(ctx: NodeContext, q: Quantized, scale: Value, zero: Value | None) -> Value:
    return quantized_elementwise(ctx, lambda x: x, [q], scale, zero, q.value.dtype)


@onnx_op("QLinearConcat", domain=MS)
def qlinear_concat(ctx: NodeContext) -> Value:
    """Import QLinearConcat: requantises the inputs to one scale and concatenates them."""
    scale, zero = _result(ctx, 0)
    parts = [_requantized(ctx, _quantized(ctx, at), scale, zero) for at in range(2, len(ctx.inputs) - 2, 3)]
    return ctx.concat(parts, ctx.axis_of(len(parts[0].shape), 1))


def _real(ctx: NodeContext, q: Quantized) -> Value:
    """Return the dequantised tensor in float32."""
    return ctx.elementwise(dequantized, q.value, q.scale, nonzero_zero_point(q.zero))


def _through_real(ctx: NodeContext, fn: Callable[[Value], Value]) -> Value:
    """Return quantise(fn(dequantize_blocks(x))); x is in inputs 0 to 2, the result's parameters in 3 and 4."""
    q = _quantized(ctx, 0)
    scale, zero = _result(ctx, 3)
    return quantize(ctx, fn(_real(ctx, q)), scale, zero, q.value.dtype)


@onnx_op("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MS)
def qlinear_average_pool(ctx: NodeContext) -> Value:
    """Import QLinearAveragePool, mean of each window, and QLinearGlobalAveragePool, over all spatial axes."""
    last = ctx.attr("channels_last", False)

    def average(x: Value) -> Value:
        rank = len(x.shape)
        if ctx.op_type == "QLinearGlobalAveragePool":
            return ctx.reduce(x, "mean", range(1, rank - 1) if last else range(2, rank))
        y = pool(ctx, channels_first(ctx, x) if last else x, "average")
        assert isinstance(y, Value)
        return channels_last(ctx, y) if last else y

    return _through_real(ctx, average)


@onnx_op("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(ctx: NodeContext) -> Value:
    """Import QLinearReduceMean: mean over axes."""

    def mean(x: Value) -> Value:
        axes = positive_axes(ctx.ints("axes", range(len(x.shape))), len(x.shape))
        return ctx.reduce(x, "mean", axes, ctx.flag("keepdims", True))

    return _through_real(ctx, mean)


@onnx_op("QLinearSoftmax", domain=MS)
def qlinear_softmax(ctx: NodeContext) -> Value:
    """Import QLinearSoftmax: along an axis; before opset 13 over all axes from there on."""

    def normalized(x: Value) -> Value:
        axis = ctx.axis_of(len(x.shape), -1)
        if ctx.attr("opset", 13) >= 13:
            return ctx.softmax(x, axis)
        flat = ctx.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return ctx.reshape(ctx.softmax(flat), x.shape)

    return _through_real(ctx, normalized)


# Products


@onnx_op("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(ctx: NodeContext) -> Value:
    """Import MatMulIntegerToFloat: (a - a_zero) (b - b_zero) * a_scale * b_scale + bias, product exact in int32."""
    acc = integer_product(ctx, ctx.input(0), ctx.input(1), ctx.get(4), ctx.get(5))
    return rescale_to_float(ctx, acc, ctx.input(2), ctx.input(3), ctx.get(6))


@onnx_op("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(ctx: NodeContext) -> Value:
    """Import DynamicQuantizeMatMul: as MatMulIntegerToFloat, with a quantised by its own range."""
    q, scale, zero = dynamic_quantize(ctx, ctx.input(0))
    acc = integer_product(ctx, q, ctx.input(1), zero, ctx.get(3))
    return rescale_to_float(ctx, acc, scale, ctx.input(2), ctx.get(4))


def rescale_to_float(ctx: NodeContext, acc: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Value:
    """Return acc * a_scale * b_scale + bias in b_scale's dtype; scales and bias have one element or one per column."""
    dtype = b_scale.dtype

    def real(x: Sym, a: Sym, b: Sym, c: Sym | None) -> Sym:
        y = x.cast(DType.FLOAT32) * (a.cast(DType.FLOAT32) * b.cast(DType.FLOAT32))
        return (y if c is None else y + c.cast(DType.FLOAT32)).cast(dtype)

    return ctx.elementwise(real, acc, ctx.reshape(a_scale, ()), b_scale, bias)


@onnx_op("QGemm", domain=MS)
def qgemm(ctx: NodeContext) -> Value:
    """Import QGemm: alpha * A' B' + C, exact in int32, then rescaled; float32 without result scale."""
    a, b = ctx.input(0), ctx.input(3)
    turned = ctx.attr("transB", False)
    zeros = nonzero_zero_point(ctx.get(2)), nonzero_zero_point(ctx.get(5))
    acc = ctx.matmul(a, b, ctx.attr("transA", False), turned, zeros=zeros)
    acc = scale_and_add(ctx, acc, ctx.get(6), 1.0, 1.0)
    alpha = ctx.scalar(ctx.attr("alpha", 1.0), DType.FLOAT32)
    if ctx.get(7) is None:
        y = rescale_to_float(ctx, acc, ctx.input(1), ctx.input(4), None)
        return ctx.elementwise(lambda v, f: v * f, y, alpha)
    scale, zero = _result(ctx, 7)
    factors = [alpha, ctx.reshape(ctx.input(1), ()), ctx.input(4)]
    return requantize(ctx, acc, factors, scale, zero, a.dtype if zero is None else zero.dtype)


# Encoders fused by onnxruntime's optimiser


@onnx_op("QAttention", domain=MS)
def qattention(ctx: NodeContext) -> Result:
    """Import QAttention: the projection is an integer product in int32, then rescaled to floats."""
    acc = integer_product(ctx, ctx.input(0), ctx.input(1), ctx.get(6), ctx.get(7))
    joint = rescale_to_float(ctx, acc, ctx.input(3), ctx.input(4), ctx.input(2))
    return attend_projection(ctx, joint, ctx.get(5), None, ctx.get(8))


@onnx_op("QEmbedLayerNormalization", domain=MS)
def qembed_layer_normalization(ctx: NodeContext) -> Result:
    """Import QEmbedLayerNormalization: 8-bit embeddings and parameters, each with scale and zero point."""

    def real(i: int) -> Value | None:
        table = ctx.get(2 + i)
        if table is None:
            return None
        scale, zero = (ctx.reshape(ctx.input(at + i), ()) for at in (8, 13))
        return ctx.elementwise(dequantized, table, scale, zero)

    return embed_and_normalize(ctx, [real(i) for i in range(5)])


# Recurrent layers with 8-bit weights

MOST_SEQUENCES = 16
MOST_UNITS = 2048
"""Limits of sequences and state units quantised with one range: a work-group holds as many. onnxruntime divides them
among threads.
"""


@onnx_op("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(ctx: NodeContext) -> Sequence[Value]:
    """Import DynamicQuantizeLSTM: 8-bit weights w[D,I,4H] and r[D,H,4H]; x and h are quantised by their own ranges.

    x is quantised once, h at each step.

    Inputs 8 and 9 are scale and zero point of w, 10 and 11 of r, by direction or by direction and column.
    """
    rounded = (_quantised_input(ctx, ctx.input(0)), _dequantised_weight(ctx, 1, 8), _dequantised_weight(ctx, 2, 10))
    batch, hidden = fixed(ctx.input(0).shape[1]), fixed(ctx.input(2).shape[1])
    most = max(1, min(MOST_SEQUENCES, MOST_UNITS // max(1, hidden)))
    if batch <= most:
        return recurrent(ctx, "lstm", rounded)
    parts = [recurrent(ctx, "lstm", rounded, i, min(most, batch - i)) for i in range(0, batch, most)]
    return [ctx.concat(list(pieces), 2 - min(i, 1)) for i, pieces in enumerate(zip(*parts, strict=True))]


def _quantised_input(ctx: NodeContext, x: Value) -> Value:
    """Quantise x[T,B,I] to 256 levels of its range over the steps in use."""
    lens = ctx.maybe_const(4)
    steps = x.shape[0] if lens is None or not lens.size else int(np.clip(lens.max(), 0, fixed(x.shape[0])))
    if steps != x.shape[0]:
        rest = ctx.slice_axis(x, 0, steps, x.shape[0])
        return ctx.concat([_quantise(ctx, ctx.slice_axis(x, 0, 0, steps)), rest], 0)
    return _quantise(ctx, x)


def _quantise(ctx: NodeContext, x: Value) -> Value:
    q, scale, zero = dynamic_quantize(ctx, x)
    return ctx.elementwise(dequantized, q, scale, zero)


def _dequantised_weight(ctx: NodeContext, at: int, scale: int) -> Value:
    """Return (q - zero point) * scale of input `at` in float32, in LSTM's layout [D,4H,K]."""
    q, s, zero = ctx.input(at), ctx.input(scale), ctx.get(scale + 1)

    def spread(v: Value) -> Value:
        directions = v.shape[0] if v.shape else 1
        return ctx.reshape(v, (directions, 1, v.type.count // directions))

    def real(x: Sym, f: Sym, z: Sym | None) -> Sym:
        return (x.cast(DType.FLOAT32) - (0.0 if z is None else z.cast(DType.FLOAT32))) * f

    wide = ctx.elementwise(real, q, spread(s), None if zero is None else spread(zero))
    return ctx.transpose(wide, (0, 2, 1))
