"""Loss functions over classes."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.gather import GatherElements
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext


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
    reduction = ctx.attr("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        raise UnsupportedOpError(f"{ctx.label} has reduction '{reduction}'; known are none, sum, mean")
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
