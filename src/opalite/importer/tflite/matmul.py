"""Importers of matrix products."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import DType, Value
from ..walk.node_context import NodeContext
from .common import activated, tflite_op, unsupported


@tflite_op("FULLY_CONNECTED")
def fully_connected(ctx: NodeContext) -> Value:
    """Import FULLY_CONNECTED: rows of x by weights [units, inputs], plus a bias; rank kept with keep_num_dims."""
    x, w = ctx.input(0), ctx.input(1)
    if ctx.attr("weights_format", 0):
        raise unsupported(ctx, "has weights shuffled for one engine: convert the model anew")
    if len(w.shape) != 2:
        raise ShapeError(f"{ctx.label} has weights {w.type}; [units, inputs] are expected")
    inputs = w.shape[1]
    keeps = bool(ctx.attr("keep_num_dims", False)) and bool(x.shape)
    if (keeps and x.shape[-1] != inputs) or not inputs or x.type.count % inputs:
        raise ShapeError(f"{ctx.label} has weights {w.type} for {x.type}: rows of {inputs} elements are expected")
    lead = x.shape[:-1] if keeps else (x.type.count // inputs,)
    rows = ctx.reshape(x, (*lead, inputs))
    y = ctx.plus(ctx.matmul(rows, w, trans_b=True), ctx.get(2))
    return activated(ctx, y)


@tflite_op("BATCH_MATMUL")
def batch_matmul(ctx: NodeContext) -> Value:
    """Import BATCH_MATMUL: NumPy's matmul, either side transposed on request."""
    a, b = ctx.input(0), ctx.input(1)
    if a.dtype is DType.INT8:
        raise unsupported(ctx, "multiplies integers without a scale")
    return ctx.matmul(a, b, bool(ctx.attr("adj_x", False)), bool(ctx.attr("adj_y", False)))
