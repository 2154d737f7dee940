"""Importers of convolutions: channels come last in the file, so that a Transpose goes before and after each."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import Value
from ...ops.conv import Conv
from ..walk.node_context import NodeContext
from .common import activated, tflite_op, to_channels_first, to_channels_last, window_pads


@tflite_op("CONV_2D")
def conv_2d(ctx: NodeContext) -> Value:
    """Import CONV_2D: x[N,H,W,C] by filters [M,h,w,C/group]."""
    x, w = ctx.input(0), ctx.input(1)
    _check_rank(ctx, x, w)
    if w.shape[3] == 0 or x.shape[3] % w.shape[3]:
        raise ShapeError(f"{ctx.label} has filters {w.type} for {x.type}: channels must be a multiple")
    return _convolve(ctx, x, ctx.transpose(w, (0, 3, 1, 2)), x.shape[3] // w.shape[3])


@tflite_op("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(ctx: NodeContext) -> Value:
    """Import DEPTHWISE_CONV_2D: x[N,H,W,C] by filters [1,h,w,C*multiplier]."""
    x, w = ctx.input(0), ctx.input(1)
    _check_rank(ctx, x, w)
    return _convolve(ctx, x, ctx.transpose(w, (3, 0, 1, 2)), x.shape[3])


def _convolve(ctx: NodeContext, x: Value, w: Value, group: int) -> Value:
    strides = (ctx.attr("stride_h", 1), ctx.attr("stride_w", 1))
    dilations = (ctx.attr("dilation_h_factor", 1), ctx.attr("dilation_w_factor", 1))
    pads = window_pads(ctx, x.shape[1:3], w.shape[2:], strides, dilations)
    y = ctx.add(Conv(strides, pads, dilations, group), [to_channels_first(ctx, x), w, ctx.get(2)])
    return to_channels_last(ctx, activated(ctx, y))


def _check_rank(ctx: NodeContext, *values: Value) -> None:
    for v in values:
        if len(v.shape) != 4:
            raise ShapeError(f"{ctx.label} expects 4 axes, got {v.type}")
