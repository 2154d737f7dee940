"""Operators of domain com.microsoft.nchwc on tensors [N,C,H,W]: `proto/undo_nchwc.py` has removed the blocks.

A node has two additional attributes: `channels` (of the output; FULL: whole blocks) and `block`.
"""

from __future__ import annotations

from ...errors import ShapeError, UnsupportedOpError
from ...ir.graph import Value
from ..onnx.image import emit_resize
from ..onnx.pool import average_pool, global_average_pool, global_max_pool, max_pool
from ..op_registry import onnx_op
from ..proto.undo_nchwc import FULL, NCHWC
from ..walk.node_context import NodeContext
from .unfuse import channels_first, channels_last, fused_conv

onnx_op("Conv", domain=NCHWC)(fused_conv)
onnx_op("MaxPool", domain=NCHWC)(max_pool)
onnx_op("AveragePool", domain=NCHWC)(average_pool)
onnx_op("GlobalMaxPool", domain=NCHWC)(global_max_pool)
onnx_op("GlobalAveragePool", domain=NCHWC)(global_average_pool)


@onnx_op("ReorderInput", domain=NCHWC)
def reorder_input(ctx: NodeContext) -> Value:
    """Import ReorderInput: cut x to the channels that are read, or pad it with zeros to whole blocks."""
    x = ctx.input(0)
    if ctx.attr("channels_last", 0):
        x = channels_first(ctx, x)
    has, wanted, block = x.shape[1], ctx.attr("channels", FULL), ctx.attr("block", 1)
    if wanted == FULL:
        wanted = -(-has // block) * block
    elif wanted < has:
        return ctx.slice_axis(x, 1, 0, wanted)
    return ctx.pad_zeros(x, (0, 0, 0, 0, 0, wanted - has, 0, 0))


@onnx_op("ReorderOutput", domain=NCHWC)
def reorder_output(ctx: NodeContext) -> Value:
    """Import ReorderOutput: the first `channels` of x, channels last if requested."""
    x = ctx.input(0)
    y = ctx.slice_axis(x, 1, 0, int(ctx.attr("channels", x.shape[1])))
    return channels_last(ctx, y) if ctx.attr("channels_last", 0) else y


@onnx_op("Upsample", domain=NCHWC)
def upsample(ctx: NodeContext) -> Value:
    """Import Upsample: height and width times integers, by nearest positions rounded down."""
    x, scales = ctx.input(0), ctx.ints("scales", (1, 1, 1, 1))
    if len(scales) != 4 or scales[:2] != (1, 1):
        raise ShapeError(f"{ctx.label} has scales {scales}; expected four, the first two of them 1")
    coordinate = ctx.attr("coordinate_transformation_mode", "asymmetric")
    if coordinate not in ("asymmetric", "align_corners", "half_pixel"):
        raise UnsupportedOpError(f"{ctx.label} has coordinate_transformation_mode '{coordinate}', which is unknown")
    sizes = [d * s for d, s in zip(x.shape, scales, strict=True)]
    return emit_resize(ctx, sizes, [float(s) for s in scales], coordinate, "floor")
