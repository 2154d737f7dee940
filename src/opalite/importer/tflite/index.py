"""Importers of reading and writing at indices, one-hot vectors, diagonals, and lookups in tables."""

from __future__ import annotations

import math

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic
from ...ops.gather import GatherND
from ...ops.operator import normalize_axis
from ...ops.scatter import ScatterND
from ..walk.node_context import NodeContext
from .common import tflite_op


@tflite_op("GATHER", moves=True)
def gather(ctx: NodeContext) -> Value:
    """Import GATHER: x at the positions of input 1 along an axis, for each entry of the batch axes."""
    x, indices = ctx.input(0), _indices(ctx, 1)
    axis = normalize_axis(ctx.attr("axis", 0), len(x.shape))
    batch = normalize_axis(ctx.attr("batch_dims", 0), len(indices.shape) + 1)
    if not batch:
        return ctx.gather(x, indices, axis)
    if axis < batch or x.shape[:batch] != indices.shape[:batch]:
        raise ShapeError(f"{ctx.label} has {batch} batch axes for axis {axis} of {x.type} and {indices.type}")
    # The axis goes behind the batch axes, and what is found there back to its place.
    rank, found = len(x.shape), len(indices.shape) - batch
    moved = ctx.transpose(x, (*range(batch), axis, *(i for i in range(batch, rank) if i != axis)))
    y = ctx.add(GatherND(batch), [moved, ctx.unsqueeze(indices, (len(indices.shape),))])
    before = axis - batch
    order = (
        *range(batch),
        *range(batch + found, batch + found + before),
        *range(batch, batch + found),
        *range(batch + found + before, len(y.shape)),
    )
    return ctx.transpose(y, order)


@tflite_op("GATHER_ND", moves=True)
def gather_nd(ctx: NodeContext) -> Value:
    """Import GATHER_ND: slices of x at index vectors."""
    return ctx.add(GatherND(0), [ctx.input(0), _indices(ctx, 1)])


def _indices(ctx: NodeContext, i: int) -> Value:
    """Return input `i`, with integers of 16 bits in 32."""
    v = ctx.input(i)
    return ctx.cast(v, DType.INT32) if v.dtype is DType.INT16 else v


@tflite_op("EMBEDDING_LOOKUP", moves=True)
def embedding_lookup(ctx: NodeContext) -> Value:
    """Import EMBEDDING_LOOKUP: rows of input 1 at the numbers in input 0."""
    return ctx.gather(ctx.input(1), ctx.input(0), 0)


@tflite_op("SCATTER_ND", moves=True)
def scatter_nd(ctx: NodeContext) -> Value:
    """Import SCATTER_ND: updates added into zeros of the shape in input 2."""
    indices, updates, shape = ctx.input(0), ctx.input(1), ctx.const_ints(2)
    return ctx.add(ScatterND("add"), [ctx.full(0, updates.dtype, shape), indices, updates])


@tflite_op("SPARSE_TO_DENSE", moves=True)
def sparse_to_dense(ctx: NodeContext) -> Value:
    """Import SPARSE_TO_DENSE: values written at index vectors into a tensor of one number."""
    indices, shape, values, default = ctx.input(0), ctx.const_ints(1), ctx.input(2), ctx.input(3)
    count = 1 if not indices.shape else indices.shape[0]
    rows = ctx.reshape(indices, (count, indices.type.count // max(1, count)))
    full = ctx.expand(ctx.reshape(default, (1,) * len(shape)), shape)
    return ctx.add(ScatterND("none"), [full, rows, ctx.expand(values, (count,))])


@tflite_op("ONE_HOT", moves=True)
def one_hot(ctx: NodeContext) -> Value:
    """Import ONE_HOT: the number in input 2 where the place along a new axis equals the index, else that of input 3."""
    indices, on, off = ctx.input(0), ctx.input(2), ctx.input(3)
    depth = int_or_symbolic(ctx.const_scalar(1))
    rank = len(indices.shape) + 1
    axis = normalize_axis(ctx.attr("axis", -1), rank)
    spread = ctx.unsqueeze(ctx.cast(indices, DType.INT64), (axis,))
    shape = tuple(depth if i == axis else d for i, d in enumerate(spread.shape))

    def pick(i: Sym, high: Sym, low: Sym) -> Sym:
        return where(i.eq(coord(i.builder, axis)), high, low)

    return ctx.elementwise(pick, spread, ctx.reshape(on, ()), ctx.reshape(off, ()), shape=shape)


@tflite_op("MATRIX_DIAG", moves=True)
def matrix_diag(ctx: NodeContext) -> Value:
    """Import MATRIX_DIAG: matrices with the rows of x on their diagonals."""
    x = ctx.input(0)
    n = x.shape[-1]
    spread = ctx.reshape(x, (*x.shape, 1))
    return _on_diagonal(ctx, spread, ctx.full(0, x.dtype, (*x.shape, n)))


@tflite_op("MATRIX_SET_DIAG", moves=True)
def matrix_set_diag(ctx: NodeContext) -> Value:
    """Import MATRIX_SET_DIAG: matrices with other diagonals."""
    x, diagonal = ctx.input(0), ctx.input(1)
    rows, columns = x.shape[-2:]
    short = ctx.pad_zeros(diagonal, (0,) * (2 * len(diagonal.shape) - 1) + (rows - min(rows, columns),))
    return _on_diagonal(ctx, ctx.reshape(short, (*x.shape[:-2], rows, 1)), x)


def _on_diagonal(ctx: NodeContext, diagonal: Value, matrices: Value) -> Value:
    rank = len(matrices.shape)

    def choose(d: Sym, m: Sym) -> Sym:
        return where(coord(d.builder, rank - 1).eq(coord(d.builder, rank - 2)), d, m)

    return ctx.elementwise(choose, diagonal, matrices)


@tflite_op("DYNAMIC_UPDATE_SLICE", moves=True)
def dynamic_update_slice(ctx: NodeContext) -> Value:
    """Import DYNAMIC_UPDATE_SLICE: x with a block written from the place in input 2 on, moved inward where it ends."""
    x, update, start = ctx.input(0), ctx.input(1), ctx.input(2)
    rank = len(x.shape)
    if len(update.shape) != rank or start.type.count != rank:
        raise ShapeError(f"{ctx.label} writes {update.type} into {x.type} at {start.type}")
    if not rank or update.shape == x.shape:
        return update
    starts = ctx.cast(ctx.reshape(start, (rank,)), DType.INT64)
    begins = []
    for axis in range(rank):
        most = x.shape[axis] - update.shape[axis]
        begin = ctx.reshape(ctx.slice_axis(starts, 0, axis, axis + 1), ())
        begins.append(ctx.elementwise(lambda b, most=most: b.call("max", 0).call("min", most), begin))
    strides = [math.prod(update.shape[a + 1 :]) for a in range(rank)]

    def place(*firsts: Sym) -> Sym:
        """Return the flat position in the update, -1 outside of it."""
        steps = [coord(first.builder, axis) - first for axis, first in enumerate(firsts)]
        total, inside = steps[0] * strides[0], _within(steps[0], update.shape[0])
        for axis in range(1, rank):
            total = total + steps[axis] * strides[axis]
            inside = inside.call("and", _within(steps[axis], update.shape[axis]))
        return where(inside, total, -1)

    at = ctx.elementwise(place, *begins, shape=x.shape)
    flat = ctx.reshape(update, (update.type.count,))
    read = ctx.gather(flat, ctx.elementwise(lambda p: p.call("max", 0), at), 0)
    return ctx.elementwise(lambda p, new, old: where(p < 0, old, new), at, read, x)


def _within(step: Sym, size: int) -> Sym:
    return (step >= 0).call("and", step < size)


@tflite_op("HASHTABLE_LOOKUP", moves=True)
def hashtable_lookup(ctx: NodeContext) -> list[Value]:
    """Import HASHTABLE_LOOKUP: rows of input 2 by sorted keys, zeros where there is none; and whether there was one."""
    asked, keys, rows = ctx.input(0), ctx.const(1).reshape(-1), ctx.input(2)
    equal = ctx.elementwise(
        lambda a, k: a.eq(k), ctx.reshape(asked, (asked.type.count, 1)), ctx.constant(keys.reshape(1, -1))
    )
    numbers = ctx.constant(np.arange(1, keys.size + 1, dtype=np.int32).reshape(1, -1))
    place = ctx.reduce(ctx.elementwise(lambda e, n: where(e, n, 0), equal, numbers), "max", (1,), keepdims=False)
    found = ctx.gather(rows, ctx.elementwise(lambda p: (p - 1).call("max", 0), place), 0)
    hit = ctx.reshape(place, (asked.type.count, *(1,) * (len(rows.shape) - 1)))
    values = ctx.elementwise(lambda p, v: where(p > 0, v, 0), hit, found)
    return [values, ctx.elementwise(lambda p: (p > 0).cast(DType.UINT8), place)]
