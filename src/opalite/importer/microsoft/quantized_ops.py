"""Quantized operators of domain com.microsoft: dequantize, compute, quantize; in one expression if elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...expr.trace_function import Sym, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.affine_quantization import dequantized
from ..onnx.matmul import integer_product, scale_and_add
from ..onnx.pool import pool
from ..onnx.quantize import dynamic_quantize
from ..op_registry import onnx_op
from ..shared.quantization import Quantized, nonzero_zero_point, quantize, quantized_elementwise, requantize
from ..walk.emitter import positive_axes
from ..walk.node_context import NodeContext
from .unfuse import MS, channels_first, channels_last


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


@onnx_op("QLinearAdd", domain=MS)
def qlinear_add(ctx: NodeContext) -> Value:
    """Import QLinearAdd: a + b."""
    return _by_element(ctx, lambda a, b: a + b, 2)


@onnx_op("QLinearMul", domain=MS)
def qlinear_mul(ctx: NodeContext) -> Value:
    """Import QLinearMul: a * b."""
    return _by_element(ctx, lambda a, b: a * b, 2)


@onnx_op("QLinearSigmoid", domain=MS)
def qlinear_sigmoid(ctx: NodeContext) -> Value:
    """Import QLinearSigmoid: 1 / (1 + exp(-x))."""
    return _by_element(ctx, lambda x: x.call("sigmoid"), 1)


@onnx_op("QLinearLeakyRelu", domain=MS)
def qlinear_leaky_relu(ctx: NodeContext) -> Value:
    """Import QLinearLeakyRelu: x if x >= 0, else alpha * x."""
    alpha = ctx.attr("alpha", 0.01)
    return _by_element(ctx, lambda x: where(x < 0, x * alpha, x), 1)


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
    zero = nonzero_zero_point(q.zero)

    def real(x: Sym, s: Sym, *z: Sym) -> Sym:
        return dequantized(x, s, z[0] if z else None)

    return ctx.elementwise(real, q.value, q.scale, *([zero] if zero is not None else []))


def _through_real(ctx: NodeContext, fn: Callable[[Value], Value]) -> Value:
    """Return quantise(fn(dequantize_blocks(x))); x is in inputs 0 to 2, the result's parameters in 3 and 4."""
    q = _quantized(ctx, 0)
    scale, zero = _result(ctx, 3)
    return quantize(ctx, fn(_real(ctx, q)), scale, zero, q.value.dtype)


@onnx_op("QLinearGlobalAveragePool", domain=MS)
def qlinear_global_average_pool(ctx: NodeContext) -> Value:
    """Import QLinearGlobalAveragePool: mean over all spatial axes."""
    last = ctx.attr("channels_last", False)

    def mean(x: Value) -> Value:
        rank = len(x.shape)
        return ctx.reduce(x, "mean", range(1, rank - 1) if last else range(2, rank))

    return _through_real(ctx, mean)


@onnx_op("QLinearAveragePool", domain=MS)
def qlinear_average_pool(ctx: NodeContext) -> Value:
    """Import QLinearAveragePool: mean of each window."""
    last = ctx.attr("channels_last", False)

    def average(x: Value) -> Value:
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

    def real(x: Sym, a: Sym, b: Sym, *c: Sym) -> Sym:
        y = x.cast(DType.FLOAT32) * (a.cast(DType.FLOAT32) * b.cast(DType.FLOAT32))
        return (y + c[0].cast(DType.FLOAT32) if c else y).cast(dtype)

    return ctx.elementwise(real, acc, ctx.reshape(a_scale, ()), b_scale, *([bias] if bias is not None else []))


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
