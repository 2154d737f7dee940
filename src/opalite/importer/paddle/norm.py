"""Importers of normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import ShapeError
from ...expr.trace_function import Sym
from ...ir import Value
from .common import Found, PaddleNode, paddle_op

_STATISTICS = "out mean_out variance_out saved_mean saved_variance reserve_space"


@paddle_op("batch_norm", "sync_batch_norm", operands="x mean variance scale bias", outputs=_STATISTICS)
def batch_norm(n: PaddleNode) -> Found:
    """Import batch_norm by running statistics."""
    x, mean, variance = n.value("x"), n.value("mean"), n.value("variance")
    if not n.is_set("is_test", default=True) and not n.is_set("use_global_stats"):
        raise n.refuse("trains: it normalises by the batch's statistics. Save the model after .eval()")
    ones = n.maybe("scale") or n.full(1, mean.dtype, mean.shape)
    zeros = n.maybe("bias") or n.full(0, mean.dtype, mean.shape)
    inputs = [n.first(x), ones, zeros, mean, variance]
    out = n.back(n.emit("BatchNormalization", inputs, epsilon=float(n.number("epsilon", default=1e-5))))
    return {"out": out, "mean_out": mean, "variance_out": variance}


@paddle_op("layer_norm", operands="x scale bias", outputs="out mean variance")
def layer_norm(n: PaddleNode) -> Value:
    """Import layer_norm over all axes from begin_norm_axis on; scale and bias are vectors of all their elements."""
    x, axis = n.value("x"), int(n.number("begin_norm_axis", default=1))
    return layer_normed(n, x, n.maybe("scale"), n.maybe("bias"), axis % len(x.shape))


def layer_normed(n: PaddleNode, x: Value, scale: Value | None, bias: Value | None, axis: int) -> Value:
    """Emit layer normalisation by the node's epsilon."""
    inner = x.shape[axis:]
    scale, bias = (v if v is None else n.reshape(n.cast(v, x.dtype), inner) for v in (scale, bias))
    if scale is None:
        scale = n.full(1, x.dtype, inner)
    inputs = [x, scale, bias]
    return n.emit("LayerNormalization", inputs, axis=axis, epsilon=float(n.number("epsilon", default=1e-5)))


@paddle_op("rms_norm", operands="x bias residual norm_weight norm_bias", outputs="out residual_out")
def rms_norm(n: PaddleNode) -> Found:
    """Import rms_norm, with a sum before it where there is a residual."""
    x, axis = n.value("x"), int(n.number("begin_norm_axis", default=-1))
    if n.maybe("bias") is not None or n.maybe("residual") is not None:
        x = n.chain("add", [x, n.maybe("bias"), n.maybe("residual")])
    scale = n.value("norm_weight", "scale")
    out = n.emit(
        "SimplifiedLayerNormalization", [x, scale], axis=axis, epsilon=float(n.number("epsilon", default=1e-6))
    )
    return {"out": n.plus(out, n.maybe("norm_bias")), "residual_out": x}


@paddle_op("instance_norm", operands="x scale bias", outputs="out saved_mean saved_variance")
def instance_norm(n: PaddleNode) -> Value:
    """Import instance_norm: over the pixels of each channel."""
    x = n.value("x")
    channels = (x.shape[1],)
    scale = n.maybe("scale") or n.full(1, x.dtype, channels)
    bias = n.maybe("bias") or n.full(0, x.dtype, channels)
    return n.emit("InstanceNormalization", [x, scale, bias], epsilon=float(n.number("epsilon", default=1e-5)))


@paddle_op("group_norm", operands="x scale bias", outputs="out mean variance")
def group_norm(n: PaddleNode) -> Value:
    """Import group_norm: over the pixels of each group of channels."""
    x = n.first(n.value("x"))
    channels = (x.shape[1],)
    scale = n.maybe("scale") or n.full(1, x.dtype, channels)
    bias = n.maybe("bias") or n.full(0, x.dtype, channels)
    groups, epsilon = int(n.number("groups", default=1)), float(n.number("epsilon", default=1e-5))
    return n.back(n.emit("GroupNormalization", [x, scale, bias], num_groups=groups, epsilon=epsilon))


@paddle_op("affine_channel", operands="x scale bias")
def affine_channel(n: PaddleNode) -> Value:
    """Import affine_channel: scale and bias of each channel."""
    x = n.value("x")
    axis = len(x.shape) - 1 if n.channels_last else 1
    scale, bias = (n.along_axis(n.value(name), axis, len(x.shape)) for name in ("scale", "bias"))
    return n.elementwise(lambda v, s, b: v * s + b, x, scale, bias)


@paddle_op("lrn")
def lrn(n: PaddleNode) -> Value:
    """Import lrn: x / (k + alpha * sum of x^2 over n neighbouring channels)^beta."""
    size = int(n.number("n", default=5))
    return n.emit(
        "LRN",
        [n.value("x")],
        size=size,
        alpha=float(n.number("alpha", default=1e-4)) * size,
        beta=float(n.number("beta", default=0.75)),
        bias=float(n.number("k", default=2.0)),
    )


@paddle_op("norm", operands="x", outputs="out norm")
def l2_normalize(n: PaddleNode) -> Value:
    """Import norm: x / sqrt(sum of x^2 along an axis + epsilon)."""
    x = n.value("x")
    epsilon = float(n.number("epsilon", default=1e-10))
    total = n.reduce(x, "sumsq", [n.axis(len(x.shape), "axis", default=-1)])
    return n.elementwise(lambda v, s: v * (s + epsilon).call("rsqrt"), x, total)


@paddle_op("p_norm")
def p_norm(n: PaddleNode) -> Value:
    """Import p_norm: along one axis, or of the whole tensor as a vector."""
    x, keep = n.value("x"), n.is_set("keepdim")
    if n.is_set("asvector"):
        axes: Sequence[int] = range(len(x.shape))
    else:
        axes = [n.axis(len(x.shape), "axis", default=-1)]
    return normed(n, x, float(n.number("porder", default=2.0)), axes, keep)


@paddle_op("frobenius_norm", operands="x axis")
def frobenius_norm(n: PaddleNode) -> Value:
    """Import frobenius_norm: the root of the sum of squares."""
    x, axes = n.value("x"), n.whole("dim", "axis", default=())
    axes = list(range(len(x.shape))) if n.is_set("reduce_all") or not axes else axes
    return normed(n, x, 2.0, axes, n.is_set("keep_dim", "keepdim"))


@paddle_op("dist", operands="x y")
def dist(n: PaddleNode) -> Value:
    """Import dist: the norm of the difference."""
    difference = n.elementwise(lambda a, b: a - b, n.value("x"), n.value("y"))
    return normed(n, difference, float(n.number("p", default=2.0)), range(len(difference.shape)), False)


def normed(n: PaddleNode, x: Value, p: float, axes: Sequence[int], keep: bool) -> Value:
    """Emit (sum |x|^p)^(1/p) over `axes`, also for p 0 (elements that are not zero) and infinite p."""
    if not x.dtype.is_float:
        raise ShapeError(f"{n.label} needs floats, got {x.type}")
    if p in (1.0, 2.0):
        return n.reduce(x, "l1" if p == 1 else "l2", axes, keep)
    size = n.unary("abs", x)
    if math.isinf(p):
        return n.reduce(size, "max" if p > 0 else "min", axes, keep)
    if p == 0:
        return n.reduce(n.elementwise(lambda v: v.eq(0).call("not").cast(v.dtype), size), "sum", axes, keep)

    def root(v: Sym) -> Sym:
        return v.call("pow", 1 / p)

    return n.elementwise(root, n.reduce(n.elementwise(lambda v: v.call("pow", p), size), "sum", axes, keep))
