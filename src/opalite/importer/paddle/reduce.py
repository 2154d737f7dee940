"""Importers of reductions, positions of extremes, sorting and running sums."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import DType, Value
from ...ops.cumulative import Cumulative
from ...ops.operator import normalize_axis
from ...ops.reduce import ArgReduce, Reduce
from ...ops.topk import TopK
from .common import Found, PaddleNode, paddle_op

_KINDS = {"sum": "sum", "mean": "mean", "max": "max", "min": "min", "prod": "prod", "amax": "max", "amin": "min"}
_KINDS |= {f"reduce_{name}": kind for name, kind in _KINDS.items()} | {"logsumexp": "logsumexp"}
_KINDS |= {
    "all": "min",
    "any": "max",
    "reduce_all": "min",
    "reduce_any": "max",
    "l1_norm": "l1",
    "squared_l2_norm": "sumsq",
}


@paddle_op(*_KINDS, operands="x axis")
def reduce(n: PaddleNode) -> Value:
    """Import a reduction over some axes, or all."""
    x, kind = n.value("x"), _KINDS[n.op_type]
    rank = len(x.shape)
    axes = n.whole("axis", "dims", "dim", default=())
    if n.is_set("reduce_all") or not axes:
        axes = list(range(rank))
    dtype = x.dtype
    if dtype is DType.BOOL:
        dtype = DType.INT64 if kind in ("sum", "prod") else DType.UINT8
    elif dtype is DType.INT32 and kind == "sum":
        dtype = DType.INT64
    if kind in ("mean", "logsumexp") and not dtype.is_float:
        dtype = DType.FLOAT32
    wanted = n.dtype("out_dtype", "dtype", default=dtype)
    named = tuple(sorted({normalize_axis(int(a), rank) for a in axes}))
    out = n.cast(x, dtype)
    if named:
        out = n.add(Reduce(kind=kind, axes=named, keepdims=n.is_set("keep_dim", "keepdim")), [out])
    return n.cast(out, DType.BOOL if x.dtype is DType.BOOL and kind in ("max", "min") else wanted)


@paddle_op("argmax", "argmin", "arg_max", "arg_min", operands="x axis")
def arg_reduce(n: PaddleNode) -> Value:
    """Import argmax and argmin, of one axis or of the flattened tensor."""
    x, keep = n.value("x"), n.is_set("keepdims")
    kind = n.op_type[-3:]
    dtype = n.dtype("dtype", default=DType.INT64)
    if n.is_set("flatten") or not x.shape:
        found = n.add(ArgReduce(kind, 0, False, False), [n.reshape(x, (x.type.count,))])
        return n.cast(n.reshape(found, (1,) * len(x.shape) if keep else ()), dtype)
    axis = n.axis(len(x.shape), "axis", default=-1)
    return n.cast(n.add(ArgReduce(kind, axis, keep, False), [x]), dtype)


@paddle_op("topk", "top_k", "top_k_v2", operands="x k", outputs="out indices")
def topk(n: PaddleNode) -> Found:
    """Import topk: the k largest or smallest elements of an axis, and their positions."""
    x = n.value("x")
    axis, k = n.axis(len(x.shape), "axis", default=-1), n.whole("k")[0]
    out, indices = _extreme(n, x, k, axis, n.is_set("largest", default=True))
    return {"out": out, "indices": indices}


def _extreme(n: PaddleNode, x: Value, k: int, axis: int, largest: bool) -> list[Value]:
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"{n.label} asks for {k} elements of axis {axis} of {x.type}")
    return n.add_many(TopK(k=k, axis=axis, largest=largest, sorted=True), [x], 2)


@paddle_op("argsort", outputs="out indices")
def argsort(n: PaddleNode) -> Found:
    """Import argsort: all elements of an axis in order, and their positions."""
    x = n.value("x")
    if not x.shape:
        return {"out": x, "indices": n.scalar(0, DType.INT64)}
    axis = n.axis(len(x.shape), "axis", default=-1)
    out, indices = _extreme(n, x, x.shape[axis], axis, n.is_set("descending"))
    return {"out": out, "indices": indices}


@paddle_op("kthvalue", outputs="out indices")
def kthvalue(n: PaddleNode) -> Found:
    """Import kthvalue: the k-th smallest element of an axis."""
    x, k = n.value("x"), int(n.number("k", default=1))
    axis = n.axis(len(x.shape), "axis", default=-1)
    found = [n.slice_axis(v, axis, k - 1, k) for v in _extreme(n, x, k, axis, False)]
    out, indices = found if n.is_set("keepdim") else [n.squeeze(v, [axis]) for v in found]
    return {"out": out, "indices": indices}


@paddle_op("median", outputs="out indices")
def median(n: PaddleNode) -> Found:
    """Import median: the middle element, the mean of both middle ones, or the lower of them."""
    x = n.value("x")
    axes = n.whole("axis", default=())
    if len(axes) != 1:
        x, axes = n.reshape(x, (x.type.count,)), [0]
    axis = normalize_axis(axes[0], len(x.shape))
    size = x.shape[axis]
    middle = (size - 1) // 2
    out, indices = (n.slice_axis(v, axis, middle, middle + 1) for v in _extreme(n, x, size, axis, False))
    if n.text("mode", default="avg") == "avg" and size % 2 == 0:
        ordered, _ = _extreme(n, x, size, axis, False)
        after = n.slice_axis(ordered, axis, middle + 1, middle + 2)
        out = n.elementwise(lambda a, b: (a + b) * 0.5, out, after)
    if not n.is_set("keepdim"):
        out, indices = n.squeeze(out, [axis]), n.squeeze(indices, [axis])
    return {"out": out, "indices": indices}


@paddle_op("cumsum", "cumprod", operands="x axis")
def cumulative(n: PaddleNode) -> Value:
    """Import cumsum and cumprod along an axis, or of the flattened tensor."""
    x = n.value("x")
    if n.is_set("flatten"):
        x = n.reshape(x, (x.type.count,))
    axis = n.axis(len(x.shape), "dim", "axis", default=-1)
    kind = n.op_type.removeprefix("cum")
    return n.add(Cumulative(kind, axis, n.is_set("exclusive"), n.is_set("reverse")), [x])


@paddle_op("searchsorted", "bucketize", operands="sorted_sequence values")
def searchsorted(n: PaddleNode) -> Value:
    """Import searchsorted: how many elements of a sorted row are below (or at most) each value."""
    ordered, values = n.value("sorted_sequence"), n.value("values")
    lead = ordered.shape[:-1]
    rows = n.reshape(ordered, (*lead, *(1,) * (len(values.shape) - len(lead)), ordered.shape[-1]))
    if lead and len(values.shape) != len(ordered.shape):
        raise ShapeError(f"{n.label} looks {values.type} up in {ordered.type}: the ranks must be equal")
    fn = "le" if n.is_set("right") else "lt"
    below = n.elementwise(lambda s, v: s.call(fn, v).cast(DType.INT64), rows, n.reshape(values, (*values.shape, 1)))
    found = n.reduce(below, "sum", [len(below.shape) - 1], keepdims=False)
    return n.cast(found, DType.INT32 if n.is_set("out_int32") else DType.INT64)
