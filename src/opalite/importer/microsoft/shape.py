"""Data movement and tensor creation of domain com.microsoft."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Value
from ...ops.operator import normalize_axis
from ..onnx.constant_and_random import number_range
from ..onnx.shape import pad
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext
from .unfuse import MS

onnx_op("Pad", domain=MS)(pad)


@onnx_op("Range", domain=MS)
def range_(ctx: NodeContext) -> Value:
    """Import Range: start, start + delta, ... before limit; delta defaults to 1."""
    return number_range(ctx, has_delta=ctx.get(2) is not None)


@onnx_op("ExpandDims", domain=MS)
def expand_dims(ctx: NodeContext) -> Value:
    """Import ExpandDims: inserts an axis of size 1; the position is an input."""
    return ctx.unsqueeze(ctx.input(0), (int(ctx.const_scalar(1)),))


@onnx_op("UnfoldTensor", domain=MS)
def unfold_tensor(ctx: NodeContext) -> Value:
    """Import UnfoldTensor: all windows of `size` elements along an axis, at distance `step`, as a new last axis."""
    x, size, step = ctx.input(0), ctx.attr("size", 0), ctx.attr("step", 1)
    rank = len(x.shape)
    axis = normalize_axis(ctx.attr("dim", -1), rank, "dim")
    if size < 1 or step < 1 or size > x.shape[axis]:
        raise ShapeError(f"{ctx.label} has size {size} and step {step} for axis {axis} of {x.type}")
    count = (x.shape[axis] - size) // step + 1
    places = np.arange(int(count))[:, None] * step + np.arange(size)
    found = ctx.take(x, places, axis)
    return ctx.transpose(found, (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1))


@onnx_op("TorchEmbedding", domain=MS)
def torch_embedding(ctx: NodeContext) -> Value:
    """Import TorchEmbedding: rows of a table; other inputs are for training."""
    return ctx.gather(ctx.input(0), ctx.input(1), 0)


@onnx_op("SampleOp", domain=MS)
@onnx_op("BitmaskDropout", domain=MS)
def unchanged(ctx: NodeContext) -> Value:
    """Import an operator that returns x unchanged in inference."""
    return ctx.input(0)
