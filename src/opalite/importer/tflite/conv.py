"""Importers of convolutions: channels come last in the file, so that a Transpose goes before and after each."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError
from ...ir import Value
from ...ops.conv import Conv, ConvTranspose
from ..walk.node_context import NodeContext
from .common import (
    VALID,
    activated,
    check_rank,
    numbers_of,
    tflite_op,
    to_channels_first,
    to_channels_last,
    window_pads,
)

_AXES = ("d", "h", "w")


@tflite_op("CONV_2D")
def conv_2d(ctx: NodeContext) -> Value:
    """Import CONV_2D: x[N,H,W,C] by filters [M,h,w,C/group]."""
    x, w = ctx.input(0), ctx.input(1)
    check_rank(ctx, 4, x, w)
    if w.shape[3] == 0 or x.shape[3] % w.shape[3]:
        raise ShapeError(f"{ctx.label} has filters {w.type} for {x.type}: channels must be a multiple")
    return _convolve(ctx, x, ctx.transpose(w, (0, 3, 1, 2)), x.shape[3] // w.shape[3])


@tflite_op("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(ctx: NodeContext) -> Value:
    """Import DEPTHWISE_CONV_2D: x[N,H,W,C] by filters [1,h,w,C*multiplier]."""
    x, w = ctx.input(0), ctx.input(1)
    check_rank(ctx, 4, x, w)
    return _convolve(ctx, x, ctx.transpose(w, (3, 0, 1, 2)), x.shape[3])


@tflite_op("CONV_3D")
def conv_3d(ctx: NodeContext) -> Value:
    """Import CONV_3D: x[N,D,H,W,C] by filters [d,h,w,C,M]."""
    x, w = ctx.input(0), ctx.input(1)
    check_rank(ctx, 5, x, w)
    return _convolve(ctx, x, ctx.transpose(w, (4, 3, 0, 1, 2)), 1)


def _convolve(ctx: NodeContext, x: Value, w: Value, group: int) -> Value:
    rank = len(x.shape) - 2
    strides, dilations = steps(ctx, rank)
    pads = window_pads(ctx, x.shape[1:-1], w.shape[2:], strides, dilations)
    y = ctx.add(Conv(strides, pads, dilations, group), [to_channels_first(ctx, x), ctx.cast(w, x.dtype), ctx.get(2)])
    return to_channels_last(ctx, activated(ctx, y))


def steps(ctx: NodeContext, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return strides and dilations along the last `rank` of depth, height and width."""
    axes = _AXES[3 - rank :]
    strides = numbers_of(ctx, [f"stride_{a}" for a in axes])
    return strides, numbers_of(ctx, [f"dilation_{a}_factor" for a in axes])


@tflite_op("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def transpose_conv(ctx: NodeContext) -> Value:
    """Import TRANSPOSE_CONV, filters [M,h,w,C], and CONV_3D_TRANSPOSE, [d,h,w,M,C]; input 0 is the output's shape."""
    w, x, sizes = ctx.input(1), ctx.input(2), ctx.const_ints(0)
    rank = len(x.shape) - 2
    check_rank(ctx, 4 if ctx.op_type == "TRANSPOSE_CONV" else 5, w, x)
    w = ctx.transpose(w, (3, 0, 1, 2) if rank == 2 else (4, 3, 0, 1, 2))
    if len(sizes) != rank + 2:
        raise ShapeError(f"{ctx.label} has the output shape {sizes} for {x.type}")
    return transposed(ctx, x, w, ctx.get(3), sizes[1:-1])


def transposed(ctx: NodeContext, x: Value, w: Value, bias: Value | None, sizes: Sequence[int] | None) -> Value:
    """Emit the transposed convolution of x[N,...,C] with w[C,M,...]; `sizes` of the output follow from x if None."""
    rank = len(x.shape) - 2
    strides, dilations = steps(ctx, rank)
    kernel = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    whole = [s * (d - 1) + k for d, s, k in zip(x.shape[1:-1], strides, kernel, strict=True)]
    if sizes is None:
        same = [d * s for d, s in zip(x.shape[1:-1], strides, strict=True)]
        sizes = same if ctx.attr("padding", 0) != VALID else [max(a, b) for a, b in zip(whole, same, strict=True)]
    cut = [h - s for h, s in zip(whole, sizes, strict=True)]
    begins = [max(0, c) // 2 if ctx.attr("padding", 0) != VALID else 0 for c in cut]
    ends = [c - b for c, b in zip(cut, begins, strict=True)]
    op = ConvTranspose(strides, (*begins, *ends), dilations, 1, (0,) * rank)
    y = ctx.add(op, [to_channels_first(ctx, x), w, bias])
    return to_channels_last(ctx, activated(ctx, y))
