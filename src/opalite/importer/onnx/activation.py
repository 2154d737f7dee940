"""Activations, each as one expression."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...expr.trace_function import Sym, coord, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.operator import normalize_axis
from ...ops.reduce import ArgReduce
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext


def _number(ctx: NodeContext, name: str, default: float) -> float:
    return float(ctx.attr(name, default))


@onnx_op("Relu", since=1)
def relu(ctx: NodeContext) -> Value:
    """Import Relu: max(x, 0)."""
    return ctx.elementwise(lambda x: x.call("max", 0), ctx.input(0))


@onnx_op("LeakyRelu", since=1)
def leaky_relu(ctx: NodeContext) -> Value:
    """Import LeakyRelu: x if x >= 0, else alpha * x."""
    alpha = _number(ctx, "alpha", 0.01)
    return ctx.elementwise(lambda x: where(x < 0, x * alpha, x), ctx.input(0))


@onnx_op("PRelu", since=1)
def prelu_channels(ctx: NodeContext) -> Value:
    """Import PRelu: x if x >= 0, else slope * x; a slope vector has one element per channel."""
    x, slope = ctx.input(0), ctx.input(1)
    if len(slope.shape) == 1 and slope.shape[0] > 1 and len(x.shape) > 1:
        slope = ctx.reshape(slope, (slope.shape[0], *(1,) * (len(x.shape) - 2)))
    return ctx.elementwise(_prelu, x, slope)


@onnx_op("PRelu", since=7)
def prelu(ctx: NodeContext) -> Value:
    """Import PRelu: x if x >= 0, else slope * x; the slope broadcasts to x."""
    return ctx.elementwise(_prelu, ctx.input(0), ctx.input(1))


def _prelu(x: Sym, slope: Sym) -> Sym:
    return where(x < 0, x * slope, x)


@onnx_op("Elu", since=1)
def elu(ctx: NodeContext) -> Value:
    """Import Elu: x if x >= 0, else alpha * (exp(x) - 1)."""
    alpha = _number(ctx, "alpha", 1.0)
    return ctx.elementwise(lambda x: where(x < 0, (x.call("exp") - 1) * alpha, x), ctx.input(0))


@onnx_op("Selu", since=1)
def selu(ctx: NodeContext) -> Value:
    """Import Selu: gamma * x if x > 0, else gamma * (alpha * exp(x) - alpha)."""
    early = ctx.version < 6
    alpha = _number(ctx, "alpha", 1.6732 if early else 1.6732631921768188)
    gamma = _number(ctx, "gamma", 1.0507 if early else 1.0507010221481323)
    return ctx.elementwise(lambda x: where(x > 0, x, x.call("exp") * alpha - alpha) * gamma, ctx.input(0))


@onnx_op("Celu", since=12)
def celu(ctx: NodeContext) -> Value:
    """Import Celu: max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = _number(ctx, "alpha", 1.0)
    return ctx.elementwise(
        lambda x: x.call("max", 0) + (((x / alpha).call("exp") - 1) * alpha).call("min", 0), ctx.input(0)
    )


def gelu_exact(x: Sym) -> Sym:
    """Return x/2 * (1 + erf(x / sqrt 2))."""
    return x * 0.5 * ((x * math.sqrt(0.5)).call("erf") + 1)


def gelu_tanh(x: Sym) -> Sym:
    """Return x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (inner.call("tanh") + 1)


@onnx_op("Gelu", since=20)
def gelu(ctx: NodeContext) -> Value:
    """Import Gelu: Gaussian error linear unit, exact or in its tanh form."""
    return ctx.elementwise(gelu_tanh if ctx.attr("approximate", "none") == "tanh" else gelu_exact, ctx.input(0))


def _unit_clip(x: Sym) -> Sym:
    return x.call("max", 0).call("min", 1)


@onnx_op("HardSigmoid", since=1)
def hard_sigmoid(ctx: NodeContext) -> Value:
    """Import HardSigmoid: clip(alpha * x + beta, 0, 1)."""
    alpha, beta = _number(ctx, "alpha", 0.2), _number(ctx, "beta", 0.5)
    return ctx.elementwise(lambda x: _unit_clip(x * alpha + beta), ctx.input(0))


@onnx_op("HardSwish", since=14)
def hard_swish(ctx: NodeContext) -> Value:
    """Import HardSwish: x * clip(x / 6 + 1/2, 0, 1)."""
    return ctx.elementwise(lambda x: x * _unit_clip(x * (1 / 6) + 0.5), ctx.input(0))


def softplus_of(x: Sym) -> Sym:
    """Return log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|))."""
    return x.call("max", 0) + (-x.call("abs")).call("exp").call("log1p")


@onnx_op("Softplus", since=1)
def softplus(ctx: NodeContext) -> Value:
    """Import Softplus: log(1 + exp(x))."""
    return ctx.elementwise(softplus_of, ctx.input(0))


@onnx_op("Mish", since=18)
def mish(ctx: NodeContext) -> Value:
    """Import Mish: x * tanh(softplus(x))."""
    return ctx.elementwise(lambda x: x * softplus_of(x).call("tanh"), ctx.input(0))


@onnx_op("Softsign", since=1)
def softsign(ctx: NodeContext) -> Value:
    """Import Softsign: x / (1 + |x|)."""
    return ctx.elementwise(lambda x: x / (x.call("abs") + 1), ctx.input(0))


def swish_of(x: Sym, alpha: float) -> Sym:
    """Return x * sigmoid(alpha * x)."""
    return x * (x if alpha == 1.0 else x * alpha).call("sigmoid")


@onnx_op("Swish", since=24)
def swish(ctx: NodeContext) -> Value:
    """Import Swish: x * sigmoid(alpha * x)."""
    alpha = _number(ctx, "alpha", 1.0)
    return ctx.elementwise(lambda x: swish_of(x, alpha), ctx.input(0))


@onnx_op("SwiGLU", since=28)
def swiglu(ctx: NodeContext) -> Value:
    """Import SwiGLU: swish(a) * b."""
    alpha = _number(ctx, "alpha", 1.0)
    return ctx.elementwise(lambda a, b: swish_of(a, alpha) * b, ctx.input(0), ctx.input(1))


@onnx_op("ThresholdedRelu", since=1)
def thresholded_relu(ctx: NodeContext) -> Value:
    """Import ThresholdedRelu: x if x > alpha, else 0."""
    alpha = _number(ctx, "alpha", 1.0)
    return ctx.elementwise(lambda x: where(x > alpha, x, 0), ctx.input(0))


@onnx_op("Shrink", since=9)
def shrink(ctx: NodeContext) -> Value:
    """Import Shrink: x + bias below -lambd, x - bias above lambd, else 0; integers are converted to float32."""
    bias, lambd = _number(ctx, "bias", 0.0), _number(ctx, "lambd", 0.5)
    x = ctx.input(0)

    def shrunk(v: Sym) -> Sym:
        real = v if v.dtype.is_float else v.cast(DType.FLOAT32)
        return where(real < -lambd, real + bias, where(real > lambd, real - bias, 0)).cast(v.dtype)

    return ctx.elementwise(shrunk, x)


# Softmax and similar operators: before opset 13 they work over all axes from `axis` on.


def _flattened(ctx: NodeContext, default: int) -> tuple[Value, int]:
    """Return the input and its axis; before opset 13 a 2-D view of it."""
    x = ctx.input(0)
    axis = normalize_axis(int(ctx.attr("axis", default)), len(x.shape))
    if ctx.version >= 13 or axis >= len(x.shape) - 1:
        return x, axis
    outer = math.prod(x.shape[:axis])
    return ctx.reshape(x, (outer, math.prod(x.shape[axis:]))), 1


def _soft(ctx: NodeContext, default: int, log: bool) -> Value:
    """Emit softmax, or its logarithm; default: of the attribute `axis`."""
    x, axis = _flattened(ctx, default)
    if not x.shape:
        return ctx.elementwise(lambda v: v * 0 + (0 if log else 1), x)
    return ctx.reshape(ctx.softmax(x, axis, log), ctx.input(0).shape)


def _hard(ctx: NodeContext, default: int) -> Value:
    """Emit 1 at the first maximum, 0 elsewhere; default: of the attribute `axis`."""
    x, axis = _flattened(ctx, default)
    if not x.type.count:
        return ctx.input(0)
    best = ctx.add(ArgReduce(kind="max", axis=axis, keepdims=True, select_last=False), [x])

    def one_hot(v: Sym, position: Sym) -> Sym:
        return coord(v.builder, axis).eq(position).cast(v.dtype)

    return ctx.reshape(ctx.elementwise(one_hot, x, best), ctx.input(0).shape)


def _register(op_type: str, emit: Callable[[NodeContext, int], Value]) -> None:
    onnx_op(op_type, since=1)(lambda ctx: emit(ctx, 1))
    onnx_op(op_type, since=13)(lambda ctx: emit(ctx, -1))


_register("Softmax", lambda ctx, axis: _soft(ctx, axis, log=False))
_register("LogSoftmax", lambda ctx, axis: _soft(ctx, axis, log=True))
_register("Hardmax", _hard)
