"""Importers of activations."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import Value
from ..onnx.activation import gelu_exact, gelu_tanh, leaky_relu, softplus_of
from .common import Found, PaddleNode, paddle_op


def _relu6(x: Sym) -> Sym:
    return x.call("max", 0).call("min", 6)


_PLAIN: dict[str, Callable[[Sym], Sym]] = {
    "relu": lambda x: x.call("max", 0),
    "silu": lambda x: x * x.call("sigmoid"),
    "softsign": lambda x: x / (x.call("abs") + 1),
    "tanh_shrink": lambda x: x - x.call("tanh"),
    "logsigmoid": lambda x: -softplus_of(-x),
}


@paddle_op(*_PLAIN)
def plain(n: PaddleNode) -> Value:
    """Import an activation without parameters."""
    return n.elementwise(_PLAIN[n.op_type], n.value("x"))


def _swish(x: Sym, beta: float) -> Sym:
    return x * (x if beta == 1.0 else x * beta).call("sigmoid")


def _hard_swish(x: Sym, threshold: float, scale: float, offset: float) -> Sym:
    return x * (x + offset).call("max", 0).call("min", threshold) * (1 / scale)


def _softplus(x: Sym, beta: float, threshold: float) -> Sym:
    return where(x * beta > threshold, x, softplus_of(x * beta) * (1 / beta))


def _mish(x: Sym, threshold: float) -> Sym:
    return x * where(x > threshold, x, softplus_of(x)).call("tanh")


Parameters = tuple[tuple[tuple[str, ...], float], ...]

_WITH_PARAMETERS: dict[str, tuple[Callable[..., Sym], Parameters]] = {
    "relu6": (lambda x, limit: x.call("max", 0).call("min", limit), ((("threshold",), 6.0),)),
    "elu": (lambda x, a: where(x < 0, (x.call("exp") - 1) * a, x), ((("alpha",), 1.0),)),
    "celu": (
        lambda x, a: x.call("max", 0) + (((x / a).call("exp") - 1) * a).call("min", 0),
        ((("alpha",), 1.0),),
    ),
    "selu": (
        lambda x, s, a: where(x > 0, x, x.call("exp") * a - a) * s,
        ((("scale",), 1.0507009873554805), (("alpha",), 1.6732632423543772)),
    ),
    "leaky_relu": (leaky_relu, ((("negative_slope", "alpha"), 0.02),)),
    "swish": (_swish, ((("beta",), 1.0),)),
    "hard_swish": (_hard_swish, ((("threshold",), 6.0), (("scale",), 6.0), (("offset",), 3.0))),
    "hard_sigmoid": (
        lambda x, a, b: (x * a + b).call("max", 0).call("min", 1),
        ((("slope",), 0.2), (("offset",), 0.5)),
    ),
    "hardtanh": (lambda x, a, b: x.call("max", a).call("min", b), ((("t_min",), -1.0), (("t_max",), 1.0))),
    "softplus": (_softplus, ((("beta",), 1.0), (("threshold",), 20.0))),
    "mish": (_mish, ((("threshold", "lambda"), 20.0),)),
    "hard_shrink": (lambda x, t: where(x.call("abs") > t, x, 0), ((("threshold",), 0.5),)),
    "softshrink": (
        lambda x, t: where(x > t, x - t, where(x < -t, x + t, 0)),
        ((("threshold", "lambda"), 0.5),),
    ),
    "thresholded_relu": (lambda x, t, v: where(x > t, x, v), ((("threshold",), 1.0), (("value",), 0.0))),
    "stanh": (lambda x, a, b: (x * a).call("tanh") * b, ((("scale_a",), 0.67), (("scale_b",), 1.7159))),
    "soft_relu": (lambda x, t: softplus_of(x.call("max", -t).call("min", t)), ((("threshold",), 40.0),)),
}
_OTHER_NAMES = {"hardswish": "hard_swish", "hardsigmoid": "hard_sigmoid", "hardshrink": "hard_shrink"}
_OTHER_NAMES["brelu"] = "hardtanh"


@paddle_op(*_WITH_PARAMETERS, *_OTHER_NAMES)
def with_parameters(n: PaddleNode) -> Value:
    """Import an activation with numbers as attributes."""
    fn, parameters = _WITH_PARAMETERS[_OTHER_NAMES.get(n.op_type, n.op_type)]
    numbers = [float(n.number(*names, default=default)) for names, default in parameters]
    return n.elementwise(lambda x: fn(x, *numbers), n.value("x"))


@paddle_op("gelu")
def gelu(n: PaddleNode) -> Value:
    """Import gelu, exact or by tanh."""
    return n.elementwise(gelu_tanh if n.is_set("approximate") else gelu_exact, n.value("x"))


@paddle_op("prelu", operands="x alpha")
def prelu(n: PaddleNode) -> Value:
    """Import prelu: a slope for all elements, each channel, or each element of an image."""
    x, alpha, mode = n.value("x"), n.value("alpha"), n.text("mode", default="all")
    if mode == "channel":
        axis = len(x.shape) - 1 if n.channels_last else 1
        alpha = n.along_axis(n.reshape(alpha, (alpha.type.count,)), axis, len(x.shape))
    elif mode == "element":
        alpha = n.reshape(alpha, (1, *x.shape[1:]))
    else:
        alpha = n.reshape(alpha, ())
    return n.elementwise(leaky_relu, x, alpha)


@paddle_op("softmax", "log_softmax")
def softmax(n: PaddleNode) -> Value:
    """Import softmax and its logarithm along one axis."""
    x = n.value("x")
    return n.softmax(x, n.axis(len(x.shape), "axis", default=-1), log=n.op_type == "log_softmax")


@paddle_op("softmax_with_cross_entropy", "cross_entropy_with_softmax", operands="input label", outputs="softmax loss")
def softmax_of_loss(n: PaddleNode) -> Found:
    """Import softmax_with_cross_entropy, of which inference uses the softmax."""
    x = n.value("logits", "input")
    return {"softmax": n.softmax(x, n.axis(len(x.shape), "axis", default=-1))}


@paddle_op("maxout")
def maxout(n: PaddleNode) -> Value:
    """Import maxout: the largest of each group of channels."""
    x, groups = n.value("x"), int(n.number("groups"))
    axis = n.axis(len(x.shape), "axis", default=1)
    if groups < 1 or x.shape[axis] % groups:
        raise ShapeError(f"{n.label} divides axis {axis} of {x.type} into groups of {groups}")
    shape = (*x.shape[:axis], x.shape[axis] // groups, groups, *x.shape[axis + 1 :])
    return n.reduce(n.reshape(x, shape), "max", [axis + 1], keepdims=False)


@paddle_op("dropout", operands="x seed p", outputs="out mask")
def dropout(n: PaddleNode) -> Value:
    """Import dropout: the input, scaled by 1 - p where training did not scale it up."""
    x, mode = n.value("x"), n.text("dropout_implementation", "mode", default="downgrade_in_infer")
    rate = float(n.number("dropout_prob", "p", default=0.5))
    if mode == "upscale_in_train" or rate == 0:
        return x
    return n.elementwise(lambda v: v * (1 - rate), x)
