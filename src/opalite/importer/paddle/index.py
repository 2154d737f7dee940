"""Importers of indexing: reading and writing at positions, tables, one-hot, triangles."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic
from ...ops.gather import GatherElements, GatherND
from ...ops.operator import normalize_axis
from ...ops.scatter import ScatterElements, ScatterND
from .common import PaddleNode, paddle_op

# Reading


@paddle_op("gather", "index_select", operands="x index axis")
def gather(n: PaddleNode) -> Value:
    """Import gather: positions of one axis, by a vector."""
    x, index = n.value("x"), n.value("index")
    axis = n.axis(len(x.shape), "axis", "dim", default=0)
    if len(index.shape) == 2 and index.shape[1] == 1:
        index = n.squeeze(index, [1])
    return n.gather(x, index, axis)


@paddle_op("gather_nd", operands="x index")
def gather_nd(n: PaddleNode) -> Value:
    """Import gather_nd: slices at index vectors."""
    x, index = n.value("x"), n.value("index")
    return n.add(GatherND(batch_dims=0), [x, index])


@paddle_op("index_sample", operands="x index")
def index_sample(n: PaddleNode) -> Value:
    """Import index_sample: of each row, its own positions."""
    return n.add(GatherElements(axis=1), [n.value("x"), n.value("index")])


@paddle_op("take_along_axis", operands="x index")
def take_along_axis(n: PaddleNode) -> Value:
    """Import take_along_axis: each element from its own position of an axis."""
    x, index = n.value("x", "input"), n.value("index", "indices")
    return n.add(GatherElements(axis=n.axis(len(x.shape), "Axis", "axis", default=0)), [x, index])


@paddle_op("embedding", "lookup_table_v2", "lookup_table", operands="ids weight")
def embedding(n: PaddleNode) -> Value:
    """Import embedding: rows of a table; the row padding_idx gives zeros."""
    ids, table = n.value("ids", "x"), n.value("weight", "w")
    if n.op_type == "lookup_table" and len(ids.shape) > 1 and ids.shape[-1] == 1:
        ids = n.squeeze(ids, [len(ids.shape) - 1])
    rows = n.gather(table, ids, 0)
    padding = int(n.number("padding_idx", default=-1))
    if padding < 0:
        return rows
    return n.elementwise(lambda i, v: where(i.eq(padding), 0, v), n.unsqueeze(ids, [len(ids.shape)]), rows)


@paddle_op("multiplex", operands="inputs index")
def multiplex(n: PaddleNode) -> Value:
    """Import multiplex: row i of the tensor that index[i] names."""
    values, index = n.values("inputs", "x"), n.value("index", "ids")
    rows = n.concat([n.unsqueeze(v, [1]) for v in values], 1)
    chosen = n.reshape(index, (index.shape[0], 1))
    place = n.elementwise(lambda i: coord(i.builder, 0).cast(DType.INT64), chosen)
    return n.add(GatherND(batch_dims=0), [rows, n.concat([place, n.cast(chosen, DType.INT64)], 1)])


# Writing


@paddle_op("scatter", operands="x index updates")
def scatter(n: PaddleNode) -> Value:
    """Import scatter: rows written, or the sums of those written in place of what is there."""
    x, index, updates = n.value("x"), n.value("index", "ids"), n.value("updates")
    index = n.reshape(index, (index.type.count, 1))
    if n.is_set("overwrite", default=True):
        return n.add(ScatterND(reduction="none"), [x, index, updates])
    empty = n.add(ScatterND(reduction="none"), [x, index, n.full(0, x.dtype, updates.shape)])
    return n.add(ScatterND(reduction="add"), [empty, index, updates])


@paddle_op("scatter_nd_add", operands="x index updates")
def scatter_nd_add(n: PaddleNode) -> Value:
    """Import scatter_nd_add: slices added at index vectors."""
    return n.add(ScatterND(reduction="add"), [n.value("x"), n.value("index"), n.value("updates")])


@paddle_op("index_add", operands="x index add_value")
def index_add(n: PaddleNode) -> Value:
    """Import index_add: slices added at positions of one axis."""
    x, index, value = n.value("x"), n.value("index"), n.value("add_value")
    axis = n.axis(len(x.shape), "axis", default=0)
    moved = [n.swap_axes(v, 0, axis) for v in (x, value)]
    out = n.add(ScatterND(reduction="add"), [moved[0], n.reshape(index, (index.type.count, 1)), moved[1]])
    return n.swap_axes(out, 0, axis)


_REDUCTIONS = {"assign": "none", "add": "add", "mul": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


@paddle_op("put_along_axis", operands="x index value")
def put_along_axis(n: PaddleNode) -> Value:
    """Import put_along_axis: each value at its own position of an axis."""
    x, index, value = n.value("x", "input"), n.value("index", "indices"), n.value("value", "values")
    kind = _REDUCTIONS.get(n.text("Reduce", "reduce", default="assign"))
    if kind is None or not n.is_set("Include_self", "include_self", default=True):
        raise n.refuse("reduces without what is there, or by a function other than add, multiply, amax and amin")
    axis = n.axis(len(x.shape), "Axis", "axis", default=0)
    value = n.expand(n.cast(value, x.dtype), index.shape)
    return n.add(ScatterElements(axis=axis, reduction=kind), [x, index, value])


@paddle_op("set_value", operands="x starts ends steps")
@paddle_op("set_value_with_tensor", operands="x value_tensor starts ends steps")
def set_value(n: PaddleNode) -> Value:
    """Import set_value: numbers, or a tensor, written to a strided part."""
    x = n.value("x", "input")
    tensor = n.maybe("value_tensor")
    places = [n.whole(f"{name}_tensor_list", name) for name in ("starts", "ends", "steps")]
    if n.whole("none_axes", default=()):
        raise n.refuse("writes to a part with added axes")
    axes, removed = n.whole("axes", default=()), n.whole("decrease_axes", default=())
    index: list[np.ndarray] = [np.arange(int(d)) for d in x.shape]
    for axis, start, end, step in zip(axes, *places, strict=True):
        a = normalize_axis(axis, len(x.shape))
        size = len(index[a])
        index[a] = index[a][slice(_bound(start, size), _bound(end, size), int(step))]
    part = tuple(len(i) for i in index)
    shown = tuple(d for i, d in enumerate(part) if i not in removed)
    if tensor is None:
        found = n.numbers("values", "fp32_values", "int32_values", "int64_values", "bool_values", "fp64_values") or [0]
        shape = n.whole("shape", default=(len(found),))
        tensor = n.constant(np.asarray(found, x.dtype.np).reshape(shape))
    value = n.reshape(n.expand(_fit(n, n.cast(tensor, x.dtype), len(shown)), shown), part)
    if not all(part):
        return x
    places_of = np.stack(np.meshgrid(*index, indexing="ij"), axis=-1)
    return n.add(ScatterND(reduction="none"), [x, n.constant(places_of.astype(np.int64)), value])


def _fit(n: PaddleNode, v: Value, rank: int) -> Value:
    """Remove leading axes of size 1 beyond `rank`."""
    extra = len(v.shape) - rank
    return n.squeeze(v, range(extra)) if extra > 0 else v


def _bound(at: int, size: int) -> int | None:
    return None if abs(int(at)) >= 2**31 - 1 and at > 0 else int(at)


# Made from coordinates


@paddle_op("one_hot", "one_hot_v2", operands="x num_classes")
def one_hot(n: PaddleNode) -> Value:
    """Import one_hot: 1 at each index of a new last axis."""
    x = n.value("x")
    if len(x.shape) > 1 and n.attr("allow_out_of_range") is not None and n.op_type == "one_hot":
        x = n.squeeze(x, [len(x.shape) - 1])
    depth = int_or_symbolic(n.number("depth_tensor", "depth", "num_classes"))
    dtype = n.dtype("dtype", default=DType.FLOAT32)
    rank = len(x.shape)

    def mark(i: Sym) -> Sym:
        return coord(i.builder, rank).eq(i.cast(DType.INT64)).cast(dtype)

    return n.elementwise(mark, n.unsqueeze(x, [rank]), shape=(*x.shape, depth))


@paddle_op("tril", "triu", "tril_triu")
def triangle(n: PaddleNode) -> Value:
    """Import tril and triu: one triangle of the last two axes, zeros elsewhere."""
    lower = n.op_type == "tril" or (n.op_type == "tril_triu" and n.is_set("lower"))
    k = n.scalar(int(n.number("diagonal", default=0)), DType.INT64)
    return n.emit("Trilu", [n.value("x"), k], upper=int(not lower))


@paddle_op("diag", "diag_v2")
def diag(n: PaddleNode) -> Value:
    """Import diag: a matrix with a vector on a diagonal, or the diagonal of a matrix."""
    x, offset = n.value("x"), int(n.number("offset", default=0))
    fill = float(n.number("padding_value", default=0.0))
    if len(x.shape) == 2:
        rows, columns = (int(d) for d in x.shape)
        top, left = max(0, -offset), max(0, offset)
        count = max(0, min(rows - top, columns - left))
        places = (top + np.arange(count)) * columns + left + np.arange(count)
        return n.take(n.reshape(x, (rows * columns,)), places, 0)
    if len(x.shape) != 1:
        raise ShapeError(f"{n.label} needs a vector or a matrix, got {x.type}")
    count = x.shape[0]
    size = count + abs(offset)

    def place(v: Sym) -> Sym:
        first, second = coord(v.builder, 0), coord(v.builder, 1)
        return where((second - first).eq(offset), v, fill)

    row = n.pad_zeros(x, (max(0, -offset), max(0, offset)))
    return n.elementwise(place, n.reshape(row, (size, 1)), shape=(size, size))
