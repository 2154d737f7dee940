"""Experimental operators of the first opsets: ONNX removed them, but old converted files contain them."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Value
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext
from .activation import softplus_of


@onnx_op("Affine", since=1)
def affine(ctx: NodeContext) -> Value:
    """Import Affine: alpha * x + beta."""
    alpha, beta = ctx.attr("alpha", 1.0), ctx.attr("beta", 0.0)
    return ctx.elementwise(lambda x: x * alpha + beta, ctx.input(0))


@onnx_op("Scale", since=1)
def scale(ctx: NodeContext) -> Value:
    """Import Scale: scale * x."""
    factor = ctx.attr("scale", 1.0)
    return ctx.elementwise(lambda x: x * factor, ctx.input(0))


@onnx_op("ScaledTanh", since=1)
def scaled_tanh(ctx: NodeContext) -> Value:
    """Import ScaledTanh: alpha * tanh(beta * x)."""
    alpha, beta = ctx.attr("alpha", 1.0), ctx.attr("beta", 1.0)
    return ctx.elementwise(lambda x: (x * beta).call("tanh") * alpha, ctx.input(0))


@onnx_op("ParametricSoftplus", since=1)
def parametric_softplus(ctx: NodeContext) -> Value:
    """Import ParametricSoftplus: alpha * log(1 + exp(beta * x))."""
    alpha, beta = ctx.attr("alpha", 1.0), ctx.attr("beta", 1.0)
    return ctx.elementwise(lambda x: softplus_of(x * beta) * alpha, ctx.input(0))


@onnx_op("ImageScaler", since=1)
def image_scaler(ctx: NodeContext) -> Value:
    """Import ImageScaler: scale * x[N,C,H,W] + bias[C]."""
    x, factor = ctx.input(0), ctx.attr("scale", 1.0)
    bias = np.asarray(ctx.attr("bias", ()), x.dtype.np)
    if len(x.shape) != 4 or bias.shape != (x.shape[1],):
        raise ShapeError(f"{ctx.label} has {bias.size} biases for the channels of {x.type}")
    return ctx.elementwise(lambda v, b: v * factor + b, x, ctx.constant(bias.reshape(-1, 1, 1)))


@onnx_op("Crop", since=1)
def crop(ctx: NodeContext) -> Value:
    """Import Crop: x[N,C,H,W] without `border` (left, top, right, bottom), or `scale` pixels from the top left."""
    x, size = ctx.input(0), ctx.ints("scale", ())
    left, top, right, bottom = ctx.ints("border", (0, 0, 0, 0))
    height, width = size or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    if min(left, top, height, width) < 0 or top + height > x.shape[2] or left + width > x.shape[3]:
        raise ShapeError(f"{ctx.label} crops {height} by {width} from ({top}, {left}) of {x.type}")
    return ctx.slice_axis(ctx.slice_axis(x, 2, top, top + height), 3, left, left + width)


@onnx_op("MeanVarianceNormalization", since=1)
def mean_variance_normalization(ctx: NodeContext) -> Value:
    """Import MeanVarianceNormalization: (x - mean) / deviation; attributes omit the division or include channels."""
    x = ctx.input(0)
    axes = [i for i in range(1, len(x.shape)) if i > 1 or ctx.attr("across_channels", 0)]
    deviation = ctx.elementwise(lambda v, m: v - m, x, ctx.reduce(x, "mean", axes))
    if not ctx.attr("normalize_variance", 1):
        return deviation
    spread = ctx.reduce(ctx.elementwise(lambda d: d * d, deviation), "mean", axes)
    return ctx.elementwise(lambda d, s: d / (s.call("sqrt") + 1e-9), deviation, spread)
