"""Scores and labels of ai.onnx.ml's classifiers and regressors: post-transforms, second columns, labels.

Behaviour that the standard leaves open follows onnxruntime, because models are trained against it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...expr.trace_function import Sym, where
from ...ir import Array, DType, TensorType, Value
from ...ops.gather import Gather
from ...ops.reduce import ArgReduce
from ..walk.node_context import NodeContext

ML = "ai.onnx.ml"
STRINGS_ON_HOST = "strings are the host's"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_ZERO = 1e-7  # magnitude up to which SOFTMAX_ZERO treats scores as zero


def text_array(values: Any) -> Array:
    """Convert a list of strings to an object array."""
    return np.array([v.decode() if isinstance(v, bytes) else str(v) for v in values], object)


def read_post_transform(ctx: NodeContext) -> str:
    """Return the attribute post_transform; UnsupportedOpError for an unknown one."""
    return ctx.choice("post_transform", "NONE", TRANSFORMS)


def as_rows(ctx: NodeContext, x: Value) -> Value:
    """Reshape x to float rows [N, F]: a vector is one row; float64 is kept, other types become float32."""
    rows = ctx.reshape(x, (1, x.type.count)) if len(x.shape) < 2 else x
    if len(rows.shape) > 2:
        rows = ctx.reshape(rows, (rows.shape[0], math.prod(rows.shape[1:])))
    return rows if rows.dtype in (DType.FLOAT32, DType.FLOAT64) else ctx.cast(rows, DType.FLOAT32)


def post_transform(ctx: NodeContext, scores: Value, name: str) -> Value:
    """Apply post-transform `name` to scores [N, columns]; only PROBIT changes a single column, as in onnxruntime."""
    if name == "PROBIT":
        return ctx.elementwise(_probit, scores)
    if name == "NONE" or scores.shape[1] < 2:
        return scores
    if name == "LOGISTIC":
        return ctx.elementwise(lambda s: s.call("sigmoid"), scores)
    if name == "SOFTMAX":
        return ctx.softmax(scores)
    if not scores.type.count:
        return scores
    top = ctx.reduce(scores, "max", (1,))
    powers = ctx.elementwise(lambda s, m: where(s.call("abs") <= _ZERO, 0.0, (s - m).call("exp")), scores, top)
    total = ctx.reduce(powers, "sum", (1,))

    def share(s: Sym, m: Sym, p: Sym, t: Sym) -> Sym:
        return where(t <= 0.0, 0.0, where(s.call("abs") <= _ZERO, s * (-m).call("exp"), p) / t)

    return ctx.elementwise(share, scores, top, powers, total)


def _probit(s: Sym) -> Sym:
    """Return sqrt(2) * erfinv(2 s - 1), with Winitzki's approximation of erfinv (2008), as in onnxruntime."""
    x = s * 2.0 - 1.0
    log = ((1.0 - x) * (1.0 + x)).call("log")
    half = log * 0.5 + 2.0 / (math.pi * 0.147)
    root = ((half * half - log / 0.147).call("sqrt") - half).call("sqrt")
    return where(x < 0.0, -root, root) * math.sqrt(2.0)


def both_class_scores(ctx: NodeContext, score: Value, name: str, negate: bool) -> Value:
    """Return scores of both classes from [N, 1] of the second: 1 - s (or -s if `negate`) and s; LOGISTIC of -s, s."""
    if name == "LOGISTIC":
        return ctx.concat([ctx.elementwise(lambda s: (-s).call("sigmoid"), score),
                            ctx.elementwise(lambda s: s.call("sigmoid"), score)], 1)  # fmt: skip
    first = ctx.elementwise(lambda s: -s if negate else 1.0 - s, score)
    both = ctx.concat([first, score], 1)
    return post_transform(ctx, both, name) if name == "PROBIT" else both


def class_labels(ctx: NodeContext, *ints: str) -> Array | None:
    """Return the class labels: strings, or int64s from the first attribute of `ints`; None without labels."""
    strings = ctx.attr("classlabels_strings", None)
    if strings:
        return text_array(strings)
    for name in ints:
        found = ctx.attr(name, None)
        if found is not None and len(found):
            return np.asarray(found, np.int64)
    return None


def argmax_column(ctx: NodeContext, scores: Value) -> Value:
    """Return the column of the largest score of each row: int64[N]."""
    return ctx.add(ArgReduce(kind="max", axis=1, keepdims=False, select_last=False), [scores])


def exceeds(ctx: NodeContext, score: Value, limit: float) -> Value:
    """Return 1 if score [N, 1] exceeds the limit, else 0: int64[N]."""
    found = ctx.elementwise(lambda s: (s > limit).cast(DType.INT64), score)
    return ctx.reshape(found, (score.shape[0],))


def pick_labels(ctx: NodeContext, position: Value, labels: Array) -> Value:
    """Return labels[position]; strings are selected on the host."""
    if labels.dtype == object:
        return pick_strings(ctx, position, labels)
    if np.array_equal(labels, np.arange(len(labels))):
        return position
    low, apart = int(labels[0]), int(labels[-1]) - int(labels[0])
    if len(labels) == 2 and abs(apart) < 1 << 62:
        return ctx.elementwise(lambda i: i * apart + low, position)
    return ctx.add(Gather(axis=0), [ctx.constant(labels), position])


def pick_strings(ctx: NodeContext, position: Value, labels: Array) -> Value:
    """Return labels[position] for strings; -1 selects the last."""
    types = [TensorType(DType.STRING, position.shape)]
    return ctx.add_host("Label", [position], types, STRINGS_ON_HOST, labels=[str(v) for v in labels])[0]


def column(ctx: NodeContext, scores: Value, i: int) -> Value:
    """Return scores[:, i : i + 1]."""
    return ctx.slice_axis(scores, 1, i, i + 1)
