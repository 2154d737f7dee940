"""Importers of reductions, positions of extremes, running sums and sums by segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import where
from ...ir import DType, Value
from ...ops.cumulative import Cumulative
from ...ops.operator import normalize_axis
from ...ops.reduce import ArgReduce
from ...ops.scatter import ScatterND
from ...ops.topk import TopK
from ..walk.node_context import NodeContext
from .common import out_dtype, tflite_op

_KINDS = {
    "MEAN": "mean",
    "SUM": "sum",
    "REDUCE_PROD": "prod",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "REDUCE_ANY": "max",
    "REDUCE_ALL": "min",
}


@tflite_op(*_KINDS)
def reduce(ctx: NodeContext) -> Value:
    """Import a reduction over the axes in input 1; without any, elements stay."""
    x = ctx.input(0)
    axes = {normalize_axis(int(a), max(1, len(x.shape))) for a in ctx.const_ints(1)} if x.shape else set()
    work = DType.UINT8 if x.dtype is DType.BOOL else x.dtype
    keep = bool(ctx.attr("keep_dims", False))
    return ctx.cast(ctx.reduce(ctx.cast(x, work), _KINDS[ctx.op_type], sorted(axes), keep), x.dtype)


@tflite_op("ARG_MAX", "ARG_MIN", moves=True)
def arg_reduce(ctx: NodeContext) -> Value:
    """Import ARG_MAX and ARG_MIN: the first position of an extreme along the axis in input 1."""
    x = ctx.input(0)
    axis = normalize_axis(int(ctx.const_scalar(1)), len(x.shape))
    found = ctx.add(ArgReduce("max" if ctx.op_type == "ARG_MAX" else "min", axis, False, False), [x])
    return ctx.cast(found, out_dtype(ctx))


@tflite_op("TOPK_V2", moves=True)
def top_k(ctx: NodeContext) -> Sequence[Value]:
    """Import TOPK_V2: the k largest elements of each row, and their positions."""
    x, k = ctx.input(0), int(ctx.const_scalar(1))
    if not x.shape or not 0 <= k <= x.shape[-1]:
        raise ShapeError(f"{ctx.label} asks for the top {k} of {x.type}")
    values, places = ctx.add_many(TopK(k=k, axis=len(x.shape) - 1, largest=True, sorted=True), [x], 2)
    return [values, ctx.cast(places, out_dtype(ctx, 1))]


@tflite_op("CUMSUM")
def cumsum(ctx: NodeContext) -> Value:
    """Import CUMSUM: running sums along the axis in input 1."""
    x = ctx.input(0)
    axis = normalize_axis(int(ctx.const_scalar(1)), len(x.shape))
    exclusive, reverse = bool(ctx.attr("exclusive", False)), bool(ctx.attr("reverse", False))
    return ctx.add(Cumulative(kind="sum", axis=axis, exclusive=exclusive, reverse=reverse), [x])


_SEGMENTS = {"SUM": ("add", 0), "PROD": ("mul", 1), "MAX": ("max", None), "MIN": ("min", None)}


@tflite_op("SEGMENT_SUM")
def segment_sum(ctx: NodeContext) -> Value:
    """Import SEGMENT_SUM: rows of one number in input 1 added; the largest number says how many there are."""
    ids = ctx.const(1)
    return _by_segment(ctx, "SUM", int(ids.max(initial=-1)) + 1)


@tflite_op(*(f"UNSORTED_SEGMENT_{kind}" for kind in _SEGMENTS))
def unsorted_segment(ctx: NodeContext) -> Value:
    """Import UNSORTED_SEGMENT_*: elements of one number in input 1 joined; negative numbers are left out."""
    return _by_segment(ctx, ctx.op_type.removeprefix("UNSORTED_SEGMENT_"), int(ctx.const_scalar(2)))


def _by_segment(ctx: NodeContext, kind: str, count: int) -> Value:
    x, ids = ctx.input(0), ctx.input(1)
    rest = x.shape[len(ids.shape) :]
    if x.shape[: len(ids.shape)] != ids.shape:
        raise ShapeError(f"{ctx.label} has numbers {ids.type} for {x.type}")
    reduction, start = _SEGMENTS[kind]
    if start is None:
        ends = np.finfo(x.dtype.np) if x.dtype.is_float else np.iinfo(x.dtype.np)
        start = ends.min if kind == "MAX" else ends.max
    flat = ctx.reshape(x, (ids.type.count, *rest))
    # One row more takes what is left out.
    rows = ctx.elementwise(lambda i: where((i < 0).call("or", i >= count), count, i), ids)
    full = ctx.full(start, x.dtype, (count + 1, *rest))
    out = ctx.add(ScatterND(reduction), [full, ctx.reshape(rows, (ids.type.count, 1)), flat])
    return ctx.slice_axis(out, 0, 0, count)
