"""Normalisations: by batch statistics, over trailing axes, over channel groups, and over neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ...ir.symbols import always_equal
from ...ops.local_response import LocalResponseNorm
from ...ops.normalize import Normalize
from ...ops.operator import normalize_axis
from ..proto.decode import elem_dtype
from ..walk.node_context import NodeContext, Result, onnx_op
from .conv import p_norm


@onnx_op("BatchNormalization")
def batch_normalization(ctx: NodeContext) -> Result:
    """Import BatchNormalization: by running statistics; in training mode by those of the batch, and updates them.

    Before opset 14, several outputs mean training, which runs on the host.
    """
    if ctx.version < 14 and any(ctx.uses_output(i) for i in range(1, ctx.n_outputs)):
        return ctx.host()
    if ctx.version < 14 or not ctx.flag("training_mode"):
        return _normalize_by(ctx, ctx.input(3), ctx.input(4))
    x, momentum = ctx.input(0), ctx.attr("momentum", 0.9)
    mean, _, variance = _moments(ctx, x, [i for i in range(len(x.shape)) if i != 1])
    channels = (x.shape[1],)
    mean, variance = ctx.reshape(mean, channels), ctx.reshape(variance, channels)

    def running(old: Sym, new: Sym) -> Sym:
        return old * momentum + new.cast(old.dtype) * (1 - momentum)

    return [
        _normalize_by(ctx, mean, variance),
        ctx.elementwise(running, ctx.input(3), mean),
        ctx.elementwise(running, ctx.input(4), variance),
    ]


def _normalize_by(ctx: NodeContext, mean: Value, variance: Value) -> Value:
    """Return x * s + t with s = scale / sqrt(variance + epsilon), t = bias - mean * s; constant s and t are folded.

    s and t are computed in float32 at least. Parameters with more than one axis (spatial=0) match x[1:].
    """
    x, scale, bias = ctx.input(0), ctx.input(1), ctx.input(2)
    epsilon = ctx.attr("epsilon", 1e-5)
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    parts = [ctx.cast(v, wide) for v in (scale, bias, mean, variance)]
    factor = ctx.elementwise(lambda s, v: s / (v + epsilon).call("sqrt"), parts[0], parts[3])
    shift = ctx.elementwise(lambda b, m, f: b - m * f, parts[1], parts[2], factor)
    if len(x.shape) == 1:  # [N] with one channel
        return ctx.reshape(_scale_channels(ctx, ctx.reshape(x, (*x.shape, 1)), factor, shift), x.shape)
    if not x.shape:
        raise ShapeError(f"{ctx.label} expects [N,C,...], got {x.type}")
    return _scale_channels(ctx, x, factor, shift)


def _scale_channels(ctx: NodeContext, x: Value, factor: Value, shift: Value) -> Value:
    """Return x * factor + shift, both per channel of x[N,C,...]."""
    shape = (*factor.shape, *(1,) * (len(x.shape) - 1 - len(factor.shape)))
    factor, shift = (ctx.reshape(ctx.cast(v, x.dtype), shape) for v in (factor, shift))
    return ctx.elementwise(lambda v, f, t: v * f + t, x, factor, shift)


def _moments(ctx: NodeContext, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Return mean, x - mean and variance over `axes`, dimensions kept."""
    mean = ctx.reduce(x, "mean", axes)
    deviation = ctx.elementwise(lambda v, m: v - m, x, mean)
    return mean, deviation, ctx.reduce(ctx.elementwise(lambda d: d * d, deviation), "mean", axes)


@onnx_op("InstanceNormalization", since=1)
def instance_normalization(ctx: NodeContext) -> Value:
    """Import InstanceNormalization: mean 0 and variance 1 over the spatial axes, then scale and bias per channel."""
    inputs = [ctx.input(0), ctx.input(1), ctx.input(2)]
    return ctx.add(Normalize(kind="instance", epsilon=ctx.attr("epsilon", 1e-5)), inputs)


@onnx_op("GroupNormalization", since=18)
def group_normalization(ctx: NodeContext) -> Value:
    """Import GroupNormalization: mean 0 and variance 1 over each group of channels, then scale and bias per channel.

    Before opset 21, scale and bias have one element per group.
    """
    x, groups = ctx.input(0), ctx.attr("num_groups", 1)
    if len(x.shape) < 2 or x.shape[1] % groups:
        raise ShapeError(f"{ctx.label} cannot divide the channels of {x.type} into {groups} groups")
    channels = x.shape[1]

    def by_channel(v: Value) -> Value:
        if ctx.version < 21:
            v = ctx.expand(ctx.reshape(v, (groups, 1)), (groups, channels // groups))
        elif v.type.count == 1:
            v = ctx.expand(ctx.reshape(v, (1,)), (channels,))
        return ctx.reshape(v, (channels,))

    op = Normalize(kind="group", num_groups=groups, epsilon=ctx.attr("epsilon", 1e-5))
    return ctx.add(op, [x, by_channel(ctx.input(1)), by_channel(ctx.input(2))])


@onnx_op("LayerNormalization", since=1)
def layer_normalization(ctx: NodeContext) -> Result:
    """Import LayerNormalization: mean 0 and variance 1 over the axes from `axis` on, then scale and bias."""
    x = ctx.input(0)
    axis = ctx.axis_of(len(x.shape), -1)
    epsilon = ctx.attr("epsilon", 1e-5)
    y = normalize_trailing(ctx, "layer", x, ctx.input(1), ctx.get(2), axis, epsilon)
    if not (ctx.uses_output(1) or ctx.uses_output(2)):
        return y
    wide = ctx.cast(x, elem_dtype(ctx.attr("stash_type", 1)))
    return [y, *layer_statistics(ctx, wide, axis, epsilon)]


def normalize_trailing(
    ctx: NodeContext, kind: str, x: Value, scale: Value | None, bias: Value | None, axis: int, epsilon: float
) -> Value:
    """Emit Normalize of kind "layer" or "rms" over the axes from `axis` on.

    A scale of another dtype than x, or scale or bias that broadcast along earlier axes, are applied separately.
    """
    if bias is not None and not bias.type.count and x.type.count:
        bias = None  # onnxruntime ignores an empty bias
    within = all(v is None or _is_trailing(v, x, axis) for v in (scale, bias))
    if scale is not None and (scale.dtype is not x.dtype or not within):
        y = ctx.add(Normalize(kind=kind, axis=axis, epsilon=epsilon), [x, None, None])
        y = ctx.elementwise(lambda v, s: v.cast(s.dtype) * s, y, scale)
        y = ctx.plus(y, bias)
        if len(y.shape) != len(x.shape) or any(a != b for a, b in zip(y.shape, x.shape, strict=True)):
            raise ShapeError(f"{ctx.label} has a scale {scale.type} or bias that does not broadcast to x {x.type}")
        return y
    return ctx.add(Normalize(kind=kind, axis=axis, epsilon=epsilon), [x, scale, bias])


def _is_trailing(v: Value, x: Value, axis: int) -> bool:
    """Whether `v` broadcasts to the axes of `x` from `axis` on, with size 1 on earlier axes."""
    lead = len(v.shape) - (len(x.shape) - axis)
    return all(always_equal(d, 1) for d in v.shape[: max(lead, 0)])


def layer_statistics(ctx: NodeContext, x: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """Return mean and 1 / sqrt(variance + epsilon) over the axes from `axis` on, dimensions kept."""
    mean, _, variance = _moments(ctx, x, range(axis, len(x.shape)))
    return mean, ctx.elementwise(lambda v: (v + epsilon).call("rsqrt"), variance)


@onnx_op("RMSNormalization", since=23)
@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain="com.microsoft")
def rms_normalization(ctx: NodeContext) -> Result:
    """Import RMS normalisation: x / sqrt(mean(x^2) + epsilon) from `axis` on, times scale; 1 / rms is optional."""
    x, epsilon = ctx.input(0), ctx.attr("epsilon", 1e-5)
    axis = ctx.axis_of(len(x.shape), -1)
    y = normalize_trailing(ctx, "rms", x, ctx.input(1), None, axis, epsilon)
    return [y, inverse_rms(ctx, x, axis, epsilon)] if ctx.uses_output(1) else y


def inverse_rms(ctx: NodeContext, x: Value, axis: int, epsilon: float) -> Value:
    """Return 1 / sqrt(mean(x^2) + epsilon) over the axes from `axis` on, dimensions kept, in float32."""
    squares = ctx.elementwise(lambda v: v * v, ctx.cast(x, DType.FLOAT32))
    mean = ctx.reduce(squares, "mean", range(axis, len(x.shape)))
    return ctx.elementwise(lambda v: (v + epsilon).call("rsqrt"), mean)


@onnx_op("LpNormalization", since=1)
def lp_normalization(ctx: NodeContext) -> Value:
    """Import LpNormalization: x divided by its p-norm along an axis; 0 if the norm is 0."""
    x = ctx.input(0)
    axis = ctx.axis_of(len(x.shape), -1)
    norm = p_norm(ctx, x, ctx.attr("p", 2.0), [axis])
    return ctx.elementwise(lambda v, n: where(n.eq(0), 0, v / n), x, norm)


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(ctx: NodeContext) -> Value:
    """Import MeanVarianceNormalization: (x - mean) / (deviation + 1e-9) over axes, by default all but channels.

    Before opset 9, attributes omit the division or include channels.
    """
    x = ctx.input(0)
    if ctx.version < 9:
        axes = [i for i in range(1, len(x.shape)) if i > 1 or ctx.attr("across_channels", 0)]
    else:
        axes = [normalize_axis(a, len(x.shape)) for a in ctx.ints("axes", (0, 2, 3))]
    _, deviation, variance = _moments(ctx, x, axes)
    if ctx.version < 9 and not ctx.attr("normalize_variance", 1):
        return deviation
    return ctx.elementwise(lambda d, s: d / (s.call("sqrt") + 1e-9), deviation, variance)


@onnx_op("LRN", since=1)
def lrn(ctx: NodeContext) -> Value:
    """Import LRN: x / (bias + alpha * mean of x^2 over `size` neighbouring channels)^beta; missing channels are 0."""
    alpha, beta, bias = (ctx.attr(k, v) for k, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    size = ctx.attr("size", 1)
    return ctx.add(LocalResponseNorm(size=size, alpha=alpha, beta=beta, bias=bias), [ctx.input(0)])


@onnx_op("Dropout", since=1)
def dropout(ctx: NodeContext) -> Result:
    """Import Dropout: the input and a mask of ones; training (an input since 12) runs on the host."""
    x = ctx.input(0)
    if ctx.version >= 12 and ctx.get(2) is not None and ctx.const(2).any():
        ratio = ctx.const(1) if ctx.get(1) is not None else None
        if ratio is None or ratio.any():
            return ctx.host()
    if not ctx.uses_output(1):
        return x
    kind = DType.BOOL if ctx.version >= 10 else x.dtype
    return [x, ctx.expand(ctx.scalar(1, kind), x.shape)]
