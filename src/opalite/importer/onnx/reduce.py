"""Reductions over axes, positions of extremes, the k largest elements, and loss functions over classes."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic
from ...ops.gather import GatherElements
from ...ops.operator import normalize_axis
from ...ops.reduce import ArgReduce, Reduce
from ...ops.topk import TopK
from ..walk.node_context import NodeContext, onnx_op

_NAMES = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp")
_KINDS = {f"Reduce{name}": name.lower() for name in _NAMES} | {"ReduceSumSquare": "sumsq"}
_BY_ELEMENT = {"l1": "abs", "l2": "abs", "sumsq": "square", "logsum": "log"}
"""Function applied to each element by a reduction over no axes, if it is not the identity."""

_REAL_KINDS = frozenset({"l2", "logsum", "logsumexp"})


@onnx_op(*_KINDS)
def reduce(ctx: NodeContext) -> Value:
    """Import a reduction; axes are an input since opset 13 or 18; no axes mean all unless noop_with_empty_axes."""
    x, kind, input_since = ctx.input(0), _KINDS[ctx.op_type], 13 if ctx.op_type == "ReduceSum" else 18
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


@onnx_op("ArgMax", "ArgMin")
def arg_reduce(ctx: NodeContext) -> Value:
    """Import ArgMax and ArgMin: position of the largest or smallest element along an axis."""
    x = ctx.input(0)
    kind, axis = ctx.op_type.removeprefix("Arg").lower(), ctx.axis_of(len(x.shape), 0)
    if not x.shape:  # onnxruntime accepts a scalar
        return ctx.scalar(0, DType.INT64)
    return ctx.add(ArgReduce(kind, axis, ctx.flag("keepdims", True), ctx.attr("select_last_index", False)), [x])


@onnx_op("TopK")
def top_k(ctx: NodeContext) -> Sequence[Value]:
    """Import TopK: the k largest or smallest elements; k is an attribute before opset 10, then an input."""
    x, k = ctx.input(0), ctx.attr("k", 0) if ctx.version < 10 else int_or_symbolic(ctx.const_scalar(1))
    axis = ctx.axis_of(len(x.shape), -1)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"{ctx.label} asks for the top {k} of axis {axis}, but x is {x.type}")
    op = TopK(k=k, axis=axis, largest=ctx.flag("largest", True), sorted=ctx.flag("sorted", True))
    return ctx.add_many(op, [x], 2)


# Losses over classes


@onnx_op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(ctx: NodeContext) -> Value:
    """Import NegativeLogLikelihoodLoss: -weight[target] * x[n, target[n]], optionally summed or averaged by weight."""
    return _loss(ctx, ctx.input(0))


@onnx_op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(ctx: NodeContext) -> Sequence[Value]:
    """Import SoftmaxCrossEntropyLoss: negative log-likelihood of log(softmax(scores)), which is the second output."""
    logs = ctx.softmax(ctx.input(0), 1, log=True)
    return [_loss(ctx, logs), logs][: ctx.n_outputs]


def _loss(ctx: NodeContext, logs: Value) -> Value:
    target, weight = ctx.input(1), ctx.get(2)
    reduction = ctx.choice("reduction", "mean", ("none", "sum", "mean"))
    if len(logs.shape) < 2 or target.shape != (logs.shape[0], *logs.shape[2:]):
        raise ShapeError(f"{ctx.label} needs targets of the shape of scores without classes, got {target.type}")
    ignored = ctx.attr("ignore_index", None)
    classes = logs.shape[1]
    place = ctx.elementwise(lambda t: t.cast(DType.INT64).call("max", 0).call("min", classes - 1), target)
    picked = ctx.squeeze(ctx.add(GatherElements(axis=1), [logs, ctx.unsqueeze(place, (1,))]), (1,))
    if weight is None and ignored is None:
        loss = ctx.elementwise(lambda v: -v, picked)
        return _reduce_all(ctx, loss, reduction) if reduction != "none" else loss
    share = ctx.gather(weight, place, 0) if weight is not None else ctx.scalar(1, logs)

    def counted(w: Sym, t: Sym) -> Sym:
        return w if ignored is None else where(t.eq(int(ignored)), 0, w)

    share = ctx.elementwise(counted, share, target)
    loss = ctx.elementwise(lambda v, w: -v * w, picked, share)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return _reduce_all(ctx, loss, "sum")
    return ctx.elementwise(lambda a, b: a / b, _reduce_all(ctx, loss, "sum"), _reduce_all(ctx, share, "sum"))


def _reduce_all(ctx: NodeContext, v: Value, kind: str) -> Value:
    return ctx.reduce(v, kind, range(len(v.shape)), keepdims=False)
