"""Indexing: gather, scatter, one-hot, triangles, and operators with data-dependent output."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic
from ...ops.data_movement import Pad
from ...ops.gather import GatherElements, GatherND
from ...ops.nms import NonMaxSuppression
from ...ops.operator import normalize_axis
from ...ops.scatter import ScatterElements, ScatterND
from ..walk.emitter import default_element
from ..walk.graph_builder import CacheUpdate
from ..walk.node_context import NodeContext, Result, Trimmed, onnx_op

# Reading


@onnx_op("Gather")
@onnx_op("GatherElements", since=11)
def gather(ctx: NodeContext) -> Value:
    """Import Gather, x at `indices` along one axis, and GatherElements, each element from its own position."""
    x, indices = ctx.input(0), ctx.input(1)
    axis = ctx.axis_of(len(x.shape), 0)
    _check_positions(ctx, x, (axis,))
    return ctx.gather(x, indices, axis) if ctx.op_type == "Gather" else ctx.add(GatherElements(axis=axis), [x, indices])


def _check_positions(ctx: NodeContext, x: Value, axes: Sequence[int]) -> None:
    """Raise ShapeError if input 1 is constant and has an index outside x; its rows have one index per axis.

    Indices of a run are clamped: checking them would cost a transfer.
    """
    indices = ctx.maybe_const(1)
    if indices is None or indices.dtype.kind not in "iu" or not indices.size or not x.type.count:
        return
    rows = indices if len(axes) == 1 else indices.reshape(-1, len(axes))
    columns = [indices] if len(axes) == 1 else list(rows.T)
    if all(int(c.min()) >= -x.shape[a] and int(c.max()) < x.shape[a] for c, a in zip(columns, axes, strict=True)):
        return
    sizes = np.array([x.shape[a] for a in axes])
    wrong = (rows < -sizes) | (rows >= sizes)
    if wrong.any():
        at = int(np.flatnonzero(wrong.reshape(-1))[0])
        axis = axes[at % len(axes)]
        raise ShapeError(
            f"{ctx.label} has the index {int(rows.reshape(-1)[at])} for axis {axis} of {x.type}; expected "
            f"{-x.shape[axis]} to {x.shape[axis] - 1}"
        )


def _check_vectors(ctx: NodeContext, x: Value, batch: int = 0) -> None:
    """Check constant index vectors (input 1) for x's axes from `batch` on."""
    depth = ctx.input(1).shape[-1] if ctx.input(1).shape else 0
    if batch >= 0 and 0 < depth <= len(x.shape) - batch:
        _check_positions(ctx, x, range(batch, batch + depth))


@onnx_op("GatherND", since=11)
def gather_nd(ctx: NodeContext) -> Value:
    """Import GatherND: slices of x at index vectors; the first `batch_dims` axes are batch axes."""
    x, indices, batch = ctx.input(0), ctx.input(1), ctx.attr("batch_dims", 0)
    _check_vectors(ctx, x, batch)
    return ctx.add(GatherND(batch_dims=batch), [x, indices])


@onnx_op("ArrayFeatureExtractor", since=1, domain="ai.onnx.ml")
def array_feature_extractor(ctx: NodeContext) -> Result:
    """Import ArrayFeatureExtractor: columns of the last axis at indices; a vector is one row."""
    x, indices = ctx.input(0), ctx.input(1)
    rows = ctx.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
    return ctx.gather(rows, ctx.reshape(indices, (indices.type.count,)), len(rows.shape) - 1)


@onnx_op("Compress", since=9)
def compress(ctx: NodeContext) -> Result:
    """Import Compress: slices of x selected by a condition of any length; without an axis, elements of flattened x."""
    if ctx.maybe_const(1) is None:
        return ctx.host()
    x = ctx.input(0)
    axis = ctx.attr("axis", None)
    if axis is None:
        x, axis = ctx.reshape(x, (x.type.count,)), 0
    a = normalize_axis(int(axis), len(x.shape))
    return ctx.take(x, np.flatnonzero(ctx.const(1)[: x.shape[a]]), a)


@onnx_op("ReverseSequence", since=10)
def reverse_sequence(ctx: NodeContext) -> Value:
    """Import ReverseSequence: reverses the first sequence_lens[b] steps of every batch entry b."""
    x, lens = ctx.input(0), ctx.input(1)
    rank = len(x.shape)
    time, batch = ctx.axis_of(rank, 0, "time_axis"), ctx.axis_of(rank, 1, "batch_axis")
    if {time, batch} != {0, 1}:
        raise ShapeError(f"{ctx.label} needs time and batch as the first two axes, got {time} and {batch}")
    steps, entries = x.shape[time], x.shape[batch]
    lens = ctx.cast(ctx.reshape(lens, (entries, 1) if batch == 0 else (1, entries)), DType.INT64)

    def row(length: Sym) -> Sym:
        t, b = coord(length.builder, time), coord(length.builder, batch)
        t = where(t < length, length - 1 - t, t)
        return b * steps + t if batch == 0 else t * entries + b

    rows = ctx.elementwise(row, lens, shape=x.shape[:2])
    flat = ctx.reshape(x, (steps * entries, *x.shape[2:]))
    return ctx.reshape(ctx.gather(flat, ctx.reshape(rows, (steps * entries,)), 0), x.shape)


# Writing


@onnx_op("Scatter", since=9)
@onnx_op("ScatterElements", "ScatterND", since=11)
def scatter(ctx: NodeContext) -> Value:
    """Import Scatter, ScatterElements and ScatterND: x with updates written (or added...) at positions."""
    x, reduction = ctx.input(0), ctx.choice("reduction", "none", ("none", "add", "mul", "max", "min"))
    inputs = [x, ctx.input(1), ctx.input(2)]
    if ctx.op_type == "ScatterND":
        _check_vectors(ctx, x)
        return ctx.add(ScatterND(reduction=reduction), inputs)
    axis = ctx.axis_of(len(x.shape), 0)
    _check_positions(ctx, x, (axis,))
    return ctx.add(ScatterElements(axis=axis, reduction=reduction), inputs)


@onnx_op("TensorScatter", since=24)
def tensor_scatter(ctx: NodeContext) -> Value:
    """Import TensorScatter: cache with `update` written along an axis from write_indices[b] on; circular ones wrap."""
    cache, update = ctx.input(0), ctx.input(1)
    axis = ctx.axis_of(len(cache.shape), -2)
    circular = ctx.attr("mode", "linear") == "circular"
    if axis == 0:
        raise ShapeError(f"{ctx.label} cannot write along the batch axis")
    start = ctx.get(2)
    if start is None:
        start = ctx.full(0, DType.INT64, cache.shape[:1])
    return write_rows(ctx, cache, update, start, axis, circular)


def write_rows(ctx: NodeContext, cache: Value, update: Value, start: Value, axis: int, circular: bool = False) -> Value:
    """Write `update` into `cache` along `axis` from start[b] on in batch entry b.

    Each position of the result reads the update for it, if any, else the cache.
    """
    rank, size, written = len(cache.shape), cache.shape[axis], update.shape[axis]
    starts = ctx.cast(start, DType.INT64)
    start = ctx.reshape(start, (cache.shape[0], *(1,) * (rank - 1)))

    def relative(first: Sym) -> Sym:
        step = coord(first.builder, axis) - first
        return step.call("mod", size) if circular else step

    lines = tuple(d if i in (0, axis) else 1 for i, d in enumerate(cache.shape))
    offset = ctx.elementwise(relative, start, shape=lines)
    clamped = ctx.elementwise(lambda o: o.call("max", 0).call("min", written - 1), offset, shape=cache.shape)
    moved = ctx.add(GatherElements(axis=axis), [update, clamped])

    def choose(o: Sym, new: Sym, old: Sym) -> Sym:
        return where((o >= 0).call("and", o < written), new, old)

    result = ctx.elementwise(choose, offset, moved, cache)
    ctx.record_cache_update(result, CacheUpdate(cache, update, starts, axis, circular))
    return result


# Made from coordinates


@onnx_op("OneHot", since=9)
def one_hot(ctx: NodeContext) -> Value:
    """Import OneHot: values[1] where the coordinate along a new axis equals the index, else values[0]."""
    indices, values = ctx.input(0), ctx.input(2)
    depth = int_or_symbolic(ctx.const_scalar(1))
    if depth < 0:
        raise ShapeError(f"{ctx.label} has depth {depth}; it must not be negative")
    rank = len(indices.shape) + 1
    axis = ctx.axis_of(rank, -1)
    indices = ctx.unsqueeze(ctx.cast(indices, DType.INT64), (axis,))
    off = ctx.reshape(ctx.slice_axis(values, 0, 0, 1), ())
    on = ctx.reshape(ctx.slice_axis(values, 0, 1, 2), ())

    def pick(i: Sym, low: Sym, high: Sym) -> Sym:
        return where(where(i < 0, i + depth, i).eq(coord(i.builder, axis)), high, low)

    shape = tuple(depth if i == axis else d for i, d in enumerate(indices.shape))
    return ctx.elementwise(pick, indices, off, on, shape=shape)


@onnx_op("Trilu", since=14)
def trilu(ctx: NodeContext) -> Value:
    """Import Trilu: upper or lower triangle of the last two axes, from diagonal k; zeros elsewhere."""
    x = ctx.input(0)
    rank, upper = len(x.shape), ctx.attr("upper", True)
    if rank < 2:
        raise ShapeError(f"{ctx.label} needs matrices, got {x.type}")
    k = ctx.get(1)
    diagonal = ctx.reshape(k, ()) if k is not None else ctx.scalar(0, DType.INT64)

    def keep(v: Sym, d: Sym, zero: Sym) -> Sym:
        offset = coord(v.builder, rank - 1) - coord(v.builder, rank - 2)
        return where(offset >= d if upper else offset <= d, v, zero)

    return ctx.elementwise(keep, x, diagonal, ctx.scalar(default_element(x.dtype), x.dtype))


@onnx_op("MaxUnpool", since=9)
def max_unpool(ctx: NodeContext) -> Value:
    """Import MaxUnpool: each value at its flat index into the pooled tensor, else zero; `output_shape` pads the end."""
    x, indices = ctx.input(0), ctx.input(1)
    rank = len(x.shape) - 2
    kernel = ctx.ints("kernel_shape", ())
    strides = tuple(int(s) for s in ctx.attr("strides", (1,) * rank))
    pads = tuple(int(p) for p in ctx.attr("pads", (0,) * 2 * rank))
    if not len(kernel) == len(strides) == rank or len(pads) != 2 * rank:
        raise ShapeError(f"{ctx.label} has kernel_shape {kernel}, strides {strides}, pads {pads} for {x.type}")
    pooled = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)]
    shape = (*x.shape[:2], *pooled)
    count = x.type.count
    empty = ctx.full(0, x.dtype, (math.prod(shape),))
    flat = [ctx.reshape(indices, (count,)), ctx.reshape(x, (count,))]
    out = ctx.reshape(ctx.add(ScatterElements(axis=0, reduction="none"), [empty, *flat]), shape)
    wanted = ctx.const_ints(2) if ctx.get(2) is not None else shape
    grown = [w - h for w, h in zip(wanted, shape, strict=True)]
    if min(grown) < 0:
        raise ShapeError(f"{ctx.label} has output_shape {wanted}, smaller than the pooled tensor {shape}")
    if not any(grown):
        return out
    return ctx.add(Pad(pads=(*(0,) * len(grown), *grown), mode="constant", value=0), [out])


# Data-dependent output sizes


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(ctx: NodeContext) -> Trimmed | Value:
    """Import NonMaxSuppression: (batch, class, box) of the selected boxes, by class and score."""
    boxes, scores = ctx.input(0), ctx.input(1)
    most, threshold = (ctx.const_scalar(i) if ctx.get(i) is not None else 0 for i in (2, 3))
    most = int_or_symbolic(most)
    if most <= 0:
        return ctx.constant(np.zeros((0, 3), np.int64))
    padded, count = ctx.add_many(
        NonMaxSuppression(
            center_point_box=ctx.attr("center_point_box", 0),
            max_output=most,
            iou=float(threshold),
            score=None if ctx.get(4) is None else float(ctx.const_scalar(4)),
        ),
        [boxes, scores],
        2,
    )
    return ctx.trimmed(padded, count)


@onnx_op("NonZero", since=9)
@onnx_op("Unique", since=11)
@onnx_op("Unique", "BifurcationDetector", "DynamicTimeWarping", domain="com.microsoft")
def data_dependent(ctx: NodeContext) -> Result:
    """Import an operator whose output sizes depend on data; it runs on the host."""
    return ctx.host()
