"""Importers of poolings: channels come last in the file, so that a Transpose goes before and after each."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import Value
from ...ops.pool import Pool
from ..walk.node_context import NodeContext
from .common import (
    activated,
    check_rank,
    numbers_of,
    tflite_op,
    to_channels_first,
    to_channels_last,
    window_pads,
)

_KINDS = {"AVERAGE_POOL_2D": "average", "MAX_POOL_2D": "max", "L2_POOL_2D": "average"}


@tflite_op(*_KINDS)
def pool_2d(ctx: NodeContext) -> Value:
    """Import a pooling of x[N,H,W,C]; padding counts neither in a mean nor in the root of the mean of squares."""
    x = ctx.input(0)
    check_rank(ctx, 4, x)
    if ctx.op_type == "L2_POOL_2D":
        x = ctx.elementwise(lambda v: v * v, x)
    y = ctx.add(pool_op(ctx, x, _KINDS[ctx.op_type]), [to_channels_first(ctx, x)])
    if ctx.op_type == "L2_POOL_2D":
        y = ctx.unary("sqrt", y)
    return to_channels_last(ctx, activated(ctx, y))


def pool_op(ctx: NodeContext, x: Value, kind: str) -> Pool:
    """Return the Pool that the node's options describe for x[N,H,W,C]."""
    kernel = numbers_of(ctx, ("filter_height", "filter_width"))
    strides = numbers_of(ctx, ("stride_h", "stride_w"))
    pads = window_pads(ctx, x.shape[1:3], kernel, strides, (1, 1))
    if 0 in x.shape[1:3]:
        raise ShapeError(f"{ctx.label} pools {x.type}, which has no elements")
    return Pool(
        strides=strides,
        pads=pads,
        dilations=(1, 1),
        kind=kind,
        kernel=kernel,
        ceil_mode=False,
        count_include_pad=False,
        p=2,
        with_indices=False,
        storage_order=0,
    )
