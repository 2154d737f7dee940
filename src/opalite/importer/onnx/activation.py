"""Activations, each as one expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.reduce import ArgReduce
from ..walk.node_context import NodeContext, onnx_op

Activation = tuple[Callable[..., Sym], Mapping[str, float]]
"""A function of an operand and of parameters, and the parameters in order, with their defaults."""


def gelu_exact(x: Sym) -> Sym:
    """Return x/2 * (1 + erf(x / sqrt 2))."""
    return x * 0.5 * ((x * math.sqrt(0.5)).call("erf") + 1)


def gelu_tanh(x: Sym) -> Sym:
    """Return x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (inner.call("tanh") + 1)


def softplus_of(x: Sym) -> Sym:
    """Return log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|))."""
    return x.call("max", 0) + (-x.call("abs")).call("exp").call("log1p")


def swish_of(x: Sym, alpha: float) -> Sym:
    """Return x * sigmoid(alpha * x)."""
    return x * (x if alpha == 1.0 else x * alpha).call("sigmoid")


def _celu(x: Sym, alpha: float) -> Sym:
    return x.call("max", 0) + (((x / alpha).call("exp") - 1) * alpha).call("min", 0)


def _hard_sigmoid(x: Sym, alpha: float, beta: float) -> Sym:
    return (x * alpha + beta).call("max", 0).call("min", 1)


def _selu(x: Sym, alpha: float, gamma: float) -> Sym:
    return where(x > 0, x, x.call("exp") * alpha - alpha) * gamma


def _shrink(x: Sym, bias: float, lambd: float) -> Sym:
    """Return x + bias below -lambd, x - bias above lambd, else 0; integers are converted to float32."""
    real = x if x.dtype.is_float else x.cast(DType.FLOAT32)
    return where(real < -lambd, real + bias, where(real > lambd, real - bias, 0)).cast(x.dtype)


def leaky_relu(x: Sym, alpha: float | Sym) -> Sym:
    """Return x if x >= 0, else alpha * x."""
    return where(x < 0, x * alpha, x)


ACTIVATIONS: dict[str, Activation] = {
    "Affine": (lambda x, alpha, beta: x * alpha + beta, {"alpha": 1.0, "beta": 0.0}),
    "Celu": (_celu, {"alpha": 1.0}),
    "Elu": (lambda x, alpha: where(x < 0, (x.call("exp") - 1) * alpha, x), {"alpha": 1.0}),
    "HardSigmoid": (_hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5), {}),
    "LeakyRelu": (leaky_relu, {"alpha": 0.01}),
    "Mish": (lambda x: x * softplus_of(x).call("tanh"), {}),
    "ParametricSoftplus": (lambda x, alpha, beta: softplus_of(x * beta) * alpha, {"alpha": 1.0, "beta": 1.0}),
    "Relu": (lambda x: x.call("max", 0), {}),
    "Scale": (lambda x, scale: x * scale, {"scale": 1.0}),
    "ScaledTanh": (lambda x, alpha, beta: (x * beta).call("tanh") * alpha, {"alpha": 1.0, "beta": 1.0}),
    "Selu": (_selu, {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323}),
    "Shrink": (_shrink, {"bias": 0.0, "lambd": 0.5}),
    "Softplus": (softplus_of, {}),
    "Softsign": (lambda x: x / (x.call("abs") + 1), {}),
    "Swish": (swish_of, {"alpha": 1.0}),
    "ThresholdedRelu": (lambda x, alpha: where(x > alpha, x, 0), {"alpha": 1.0}),
}
"""Activations by operator of the default domain; attributes hold the parameters."""

_SINCE = {"Celu": 12, "HardSwish": 14, "Mish": 18, "Selu": 6, "Shrink": 9, "Swish": 24}


def register_activation(op_type: str, activation: Activation, since: int = 1, domain: str = "") -> None:
    """Register an importer function that applies an activation to the operator's input."""
    fn, defaults = activation

    @onnx_op(op_type, since=since, domain=domain)
    def activate(ctx: NodeContext) -> Value:
        parameters = [ctx.attr(name, default) for name, default in defaults.items()]
        return ctx.elementwise(lambda x: fn(x, *parameters), ctx.input(0))


for _op_type, _activation in ACTIVATIONS.items():
    register_activation(_op_type, _activation, _SINCE.get(_op_type, 1))
register_activation("Selu", (_selu, {"alpha": 1.6732, "gamma": 1.0507}))


@onnx_op("PRelu")
def prelu(ctx: NodeContext) -> Value:
    """Import PRelu: x if x >= 0, else slope * x; before opset 7, a slope vector has one element per channel."""
    x, slope = ctx.input(0), ctx.input(1)
    if ctx.version < 7 and len(slope.shape) == 1 and slope.shape[0] > 1 and len(x.shape) > 1:
        slope = ctx.reshape(slope, (slope.shape[0], *(1,) * (len(x.shape) - 2)))
    return ctx.elementwise(leaky_relu, x, slope)


@onnx_op("Gelu", since=20)
def gelu(ctx: NodeContext) -> Value:
    """Import Gelu: Gaussian error linear unit, exact or in its tanh form."""
    return ctx.elementwise(gelu_tanh if ctx.attr("approximate", "none") == "tanh" else gelu_exact, ctx.input(0))


@onnx_op("SwiGLU", since=28)
def swiglu(ctx: NodeContext) -> Value:
    """Import SwiGLU: swish(a) * b."""
    alpha = ctx.attr("alpha", 1.0)
    return ctx.elementwise(lambda a, b: swish_of(a, alpha) * b, ctx.input(0), ctx.input(1))


# Softmax and similar operators: before opset 13 they work over all axes from `axis` on.


def _flattened(ctx: NodeContext) -> tuple[Value, int]:
    """Return the input and its axis; before opset 13 a 2-D view of it."""
    x = ctx.input(0)
    axis = ctx.axis_of(len(x.shape), 1 if ctx.version < 13 else -1)
    if ctx.version >= 13 or axis >= len(x.shape) - 1:
        return x, axis
    outer = math.prod(x.shape[:axis])
    return ctx.reshape(x, (outer, math.prod(x.shape[axis:]))), 1


@onnx_op("Softmax", "LogSoftmax")
def softmax(ctx: NodeContext) -> Value:
    """Import Softmax and LogSoftmax: exp(x) / sum(exp(x)), or its logarithm."""
    log = ctx.op_type == "LogSoftmax"
    x, axis = _flattened(ctx)
    if not x.shape:
        return ctx.elementwise(lambda v: v * 0 + (0 if log else 1), x)
    return ctx.reshape(ctx.softmax(x, axis, log), ctx.input(0).shape)


@onnx_op("Hardmax")
def hardmax(ctx: NodeContext) -> Value:
    """Import Hardmax: 1 at the first maximum, 0 elsewhere."""
    x, axis = _flattened(ctx)
    if not x.type.count:
        return ctx.input(0)
    best = ctx.add(ArgReduce(kind="max", axis=axis, keepdims=True, select_last=False), [x])

    def one_hot(v: Sym, position: Sym) -> Sym:
        return coord(v.builder, axis).eq(position).cast(v.dtype)

    return ctx.reshape(ctx.elementwise(one_hot, x, best), ctx.input(0).shape)
