"""Group router of experts of domain com.microsoft (DeepSeek-V3 and similar models)."""

from __future__ import annotations

from ...errors import ShapeError
from ...expr.trace_function import where
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.scatter import ScatterElements
from ...ops.topk import TopK
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext, Result
from .unfuse import MS

_HIDDEN = -3.0e38  # score of an expert outside the selected groups
_LEAST = 1e-20  # lower bound of a weight before the logarithm


@onnx_op("MoEGroupRouter", domain=MS)
def moe_group_router(ctx: NodeContext) -> Result:
    """Import MoEGroupRouter: log weights of the experts selected for each row, `router_sentinel` for others.

    If outputs 1 or 2 are used, these are the scores and weights of all experts before the selection.
    """
    logits, bias, projection = ctx.input(0), ctx.cast(ctx.input(1), DType.FLOAT32), ctx.get(2)
    dtype, experts = logits.dtype, bias.shape[0]
    wide = ctx.cast(logits, DType.FLOAT32)
    if projection is not None:
        wide = ctx.matmul(wide, ctx.cast(projection, DType.FLOAT32), trans_b=True)
    rows = wide.type.count // wide.shape[-1]
    weights = ctx.elementwise(lambda x: x.call("sigmoid"), ctx.reshape(wide, (rows, experts)))
    scores = ctx.elementwise(lambda w, b: w + b, weights, bias)
    if ctx.uses_output(1) or ctx.uses_output(2):
        return [None, scores, weights][: ctx.n_outputs]
    groups, kept = ctx.attr("n_group", 1), ctx.attr("topk_group", 1)
    if experts % groups or not 1 <= kept <= groups:
        raise ShapeError(f"{ctx.label} chooses {kept} of {groups} groups of {experts} experts")
    if kept < groups:
        members = experts // groups
        parts = ctx.reshape(scores, (rows, groups, members))
        count = min(ctx.attr("group_topk", 2), members)
        best = ctx.add_many(TopK(k=count, axis=2, largest=True, sorted=True), [parts], 2)[0]
        chosen = _top_mask(ctx, ctx.reduce(best, "sum", (2,), keepdims=False), kept)
        scores = ctx.elementwise(lambda c, s: where(c > 0.0, s, _HIDDEN), ctx.unsqueeze(chosen, (2,)), parts)
        scores = ctx.reshape(scores, (rows, experts))
    chosen = _top_mask(ctx, scores, ctx.attr("top_k", 1))
    sentinel = ctx.attr("router_sentinel", -10000.0)
    y = ctx.elementwise(lambda c, w: where(c > 0.0, w.call("max", _LEAST).call("log"), sentinel), chosen, weights)
    return ctx.cast(y, dtype)


def _top_mask(ctx: NodeContext, scores: Value, count: int) -> Value:
    """Return 1 for the best `count` of each row of scores [R,N], 0 for others."""
    places = ctx.add_many(TopK(k=count, axis=1, largest=True, sorted=True), [scores], 2)[1]
    ones = ctx.expand(ctx.scalar(1.0, DType.FLOAT32), places.shape)
    none = ctx.full(0.0, DType.FLOAT32, scores.shape)
    return ctx.add(ScatterElements(axis=1, reduction="none"), [none, places, ones])
