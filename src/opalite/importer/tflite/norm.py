"""Importers of softmax and normalisations."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import Value
from ...ops.local_response import LocalResponseNorm
from ..walk.node_context import NodeContext
from .common import activated, check_rank, tflite_op, to_channels_first, to_channels_last

_LEAST_LENGTH = 1e-6  # by which vectors that are shorter are divided


@tflite_op("SOFTMAX")
def softmax(ctx: NodeContext) -> Value:
    """Import SOFTMAX of the last axis, of beta * x."""
    x, beta = ctx.input(0), ctx.attr("beta", 1.0)
    if not x.shape:
        raise ShapeError(f"{ctx.label} expects at least one axis, got {x.type}")
    return ctx.softmax(x if beta == 1.0 else ctx.elementwise(lambda v: v * beta, x))


@tflite_op("LOG_SOFTMAX")
def log_softmax(ctx: NodeContext) -> Value:
    """Import LOG_SOFTMAX of the last axis."""
    return ctx.softmax(ctx.input(0), log=True)


@tflite_op("L2_NORMALIZATION")
def l2_normalization(ctx: NodeContext) -> Value:
    """Import L2_NORMALIZATION: vectors of the last axis divided by their lengths."""
    x = ctx.input(0)
    length = ctx.reduce(x, "l2", (len(x.shape) - 1,))
    return activated(ctx, ctx.elementwise(lambda v, n: v / n.call("max", _LEAST_LENGTH), x, length))


@tflite_op("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(ctx: NodeContext) -> Value:
    """Import LOCAL_RESPONSE_NORMALIZATION: x / (bias + alpha * sum of squares of the channels within a radius)^beta."""
    x, size = ctx.input(0), 2 * int(ctx.attr("radius", 0)) + 1
    check_rank(ctx, 4, x)
    op = LocalResponseNorm(size, ctx.attr("alpha", 0.0) * size, ctx.attr("beta", 0.0), ctx.attr("bias", 0.0))
    return to_channels_last(ctx, ctx.add(op, [to_channels_first(ctx, x)]))
