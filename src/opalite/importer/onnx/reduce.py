"""Reductions over axes, positions of extremes, and the k largest elements."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.symbols import int_or_symbolic
from ...ops.operator import normalize_axis
from ...ops.reduce import ArgReduce, Reduce
from ...ops.topk import TopK
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext

_KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sumsq",
    "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
}
_BY_ELEMENT = {"l1": "abs", "l2": "abs", "sumsq": "square", "logsum": "log"}
"""Function applied to each element by a reduction over no axes, if it is not the identity."""

_REAL_KINDS = frozenset({"l2", "logsum", "logsumexp"})


def _register(op_type: str, kind: str) -> None:
    @onnx_op(op_type, since=1)
    def convert(ctx: NodeContext) -> Value:
        return _reduce(ctx, kind, input_since=13 if op_type == "ReduceSum" else 18)


for _op_type, _kind in _KINDS.items():
    _register(_op_type, _kind)


def _reduce(ctx: NodeContext, kind: str, input_since: int) -> Value:
    """Emit a reduction; axes are an attribute before `input_since`; no axes mean all unless noop_with_empty_axes."""
    x = ctx.input(0)
    axes = ctx.ints_of("axes", 1, input_since)
    if not axes:
        if ctx.version >= input_since and ctx.flag("noop_with_empty_axes"):
            return _reduce_no_axes(ctx, x, kind)
        axes = tuple(range(len(x.shape)))
    if not x.shape:
        return _reduce_no_axes(ctx, x, kind)
    work = _work_dtype(x.dtype, kind)
    if work is DType.INT32 and kind not in ("max", "min"):
        work = DType.INT64  # overflow saturates
    named = {normalize_axis(a, len(x.shape)) for a in axes}  # a duplicate axis is reduced once
    out = ctx.add(
        Reduce(kind=kind, axes=tuple(sorted(named)), keepdims=ctx.flag("keepdims", True)), [ctx.cast(x, work)]
    )
    if work is DType.INT64 and x.dtype is DType.INT32:
        return ctx.elementwise(lambda v: v.call("max", -(2**31)).call("min", 2**31 - 1).cast(x.dtype), out)
    return ctx.cast(out, x.dtype)


def _reduce_no_axes(ctx: NodeContext, x: Value, kind: str) -> Value:
    fn = _BY_ELEMENT.get(kind)
    if fn is None:
        return x
    if fn == "square":
        return ctx.elementwise(lambda v: v * v, x)
    work = _work_dtype(x.dtype, kind) if fn == "log" else x.dtype
    return ctx.elementwise(lambda v: v.cast(work).call(fn).cast(x.dtype), x)


def _work_dtype(dtype: DType, kind: str) -> DType:
    """Return the dtype to reduce in: float32 for roots and logarithms of integers, uint8 for booleans."""
    if dtype is DType.BOOL:
        return DType.UINT8
    return DType.FLOAT32 if kind in _REAL_KINDS and not dtype.is_float else dtype


def _register_arg(op_type: str, kind: str) -> None:
    @onnx_op(op_type, since=1)
    def convert(ctx: NodeContext) -> Value:
        x = ctx.input(0)
        axis = ctx.axis_of(len(x.shape), 0)
        if not x.shape:  # onnxruntime accepts a scalar
            return ctx.scalar(0, DType.INT64)
        return ctx.add(
            ArgReduce(
                kind=kind,
                axis=axis,
                keepdims=ctx.flag("keepdims", True),
                select_last=ctx.attr("select_last_index", False),
            ),
            [x],
        )


_register_arg("ArgMax", "max")
_register_arg("ArgMin", "min")


@onnx_op("TopK", since=1)
def top_k_attribute(ctx: NodeContext) -> Sequence[Value]:
    """Import TopK: the k largest elements, sorted; k is an attribute."""
    return _top_k(ctx, ctx.attr("k", 0))


@onnx_op("TopK", since=10)
def top_k(ctx: NodeContext) -> Sequence[Value]:
    """Import TopK: the k largest or smallest elements; k is an input."""
    return _top_k(ctx, int_or_symbolic(ctx.const_scalar(1)))


def _top_k(ctx: NodeContext, k: int) -> Sequence[Value]:
    x = ctx.input(0)
    axis = ctx.axis_of(len(x.shape), -1)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"{ctx.label} asks for the top {k} of axis {axis}, but x is {x.type}")
    op = TopK(k=k, axis=axis, largest=ctx.flag("largest", True), sorted=ctx.flag("sorted", True))
    return ctx.add_many(op, [x], 2)
