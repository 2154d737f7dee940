"""Tree ensembles: one TreeEnsemble for the sums, then base values, post-transforms and labels elementwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...ir import Array, DType, Value
from ...ops.tree_ensemble import TreeEnsemble
from ..walk.node_context import NodeContext, onnx_op
from .classifier_scores import (
    ML,
    TRANSFORMS,
    argmax_column,
    as_rows,
    both_class_scores,
    class_labels,
    column,
    exceeds,
    pick_labels,
    post_transform,
    read_post_transform,
)
from .tree_arrays import Trees, base_values, flat_trees, typed_trees

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # in the order of their numbers since version 5


@onnx_op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(ctx: NodeContext) -> Value:
    """Import TreeEnsembleRegressor: leaf sums plus base values, transformed, float32 [N, n_targets]."""
    trees = ctx.memo("trees", lambda a: flat_trees(a, "target", ctx.label))
    width = ctx.attr("n_targets", 1)
    scores = _sums(ctx, trees, width, ctx.choice("aggregate_function", "SUM", _AGGREGATES))
    base = base_values(_attrs(ctx))
    if base.size and base.size not in (1, width):
        raise ShapeError(f"{ctx.label} has {base.size} base_values for {width} targets")
    if base.size and (width == 1 or base.size == width):
        scores = _add_base(ctx, scores, base)
    return ctx.cast(post_transform(ctx, scores, read_post_transform(ctx)), DType.FLOAT32)


@onnx_op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(ctx: NodeContext) -> Sequence[Value]:
    """Import TreeEnsembleClassifier: labels [N] and float32 scores [N, classes].

    With two classes, the second is selected if its sum exceeds 0, or 0.5 if all weights belong to one class and none is
    negative. If all weights belong to the first class, they count for the second, and the first column is derived.
    """
    trees = ctx.memo("trees", lambda a: flat_trees(a, "class", ctx.label))
    labels = class_labels(ctx, "classlabels_int64s")
    if labels is None:
        raise ShapeError(f"{ctx.label} has neither classlabels_strings nor classlabels_int64s")
    name, base = read_post_transform(ctx), base_values(_attrs(ctx))
    scores = _sums(ctx, trees, len(labels), "SUM")
    if len(labels) != 2:
        scores = _add_base(ctx, scores, base) if base.size == len(labels) else scores
        best = argmax_column(ctx, _mask_unused_classes(ctx, scores, trees, base))
        return pick_labels(ctx, best, labels), ctx.cast(post_transform(ctx, scores, name), DType.FLOAT32)
    named = set(np.unique(trees.columns).tolist())
    positive = bool((trees.weights >= 0).all())
    limit = 0.5 if len(named) == 1 and positive else 0.0
    if named == {0}:
        one = column(ctx, scores, 0)
        one = _add_base(ctx, one, base[:1]) if base.size else one
        position = exceeds(ctx, one, limit)
        if base.size < 2:
            scores = both_class_scores(ctx, one, name, negate=not positive)
        else:
            scores = post_transform(ctx, ctx.concat([one, column(ctx, scores, 1)], 1), name)
    else:
        if base.size == 2:
            scores = _add_base(ctx, scores, base)
        elif base.size == 1 and 0 in named:
            scores = _add_base(ctx, scores, np.array([base[0], 0], base.dtype))
        position = exceeds(ctx, column(ctx, scores, 1), limit)
        scores = post_transform(ctx, scores, name)
    return pick_labels(ctx, position, labels), ctx.cast(scores, DType.FLOAT32)


@onnx_op("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(ctx: NodeContext) -> Value:
    """Import TreeEnsemble: leaf sums, transformed, in x's dtype: [N, n_targets]."""
    trees = ctx.memo("trees", lambda a: typed_trees(a, ctx.label))
    number, transform = ctx.attr("aggregate_function", 1), ctx.attr("post_transform", 0)
    if not 0 <= number < len(_AGGREGATES):
        raise UnsupportedOpError(f"{ctx.label} has aggregate_function {number}; known are 0 to {len(_AGGREGATES) - 1}")
    if not 0 <= transform < len(TRANSFORMS):
        raise UnsupportedOpError(f"{ctx.label} has post_transform {transform}; known are 0 to {len(TRANSFORMS) - 1}")
    scores = _sums(ctx, trees, ctx.attr("n_targets", 1), _AGGREGATES[number])
    return ctx.cast(post_transform(ctx, scores, TRANSFORMS[transform]), ctx.input(0).dtype)


def _attrs(ctx: NodeContext) -> dict[str, Array]:
    return {n: v for n in ("base_values", "base_values_as_tensor") if (v := ctx.attr(n)) is not None}


def _sums(ctx: NodeContext, trees: Trees, width: int, aggregate: str) -> Value:
    x = ctx.input(0)
    rows = as_rows(ctx, x)
    if len(x.shape) > 2:
        raise ShapeError(f"{ctx.label} takes rows [N, F] or one row [F], got {x.type}")
    most = int(trees.nodes[:, 0].max(initial=-1))
    if most >= rows.shape[1]:
        raise ShapeError(f"{ctx.label} reads feature {most}, but x {x.type} has {rows.shape[1]} features")
    if trees.columns.size and not 0 <= int(trees.columns.min()) <= int(trees.columns.max()) < width:
        raise ShapeError(f"{ctx.label} gives to columns {trees.columns.min()} to {trees.columns.max()} of {width}")
    kind = rows.dtype.np
    limits = ctx.memo(f"limits {kind}", lambda _: trees.limits.astype(kind))
    weights = ctx.memo(f"weights {kind}", lambda _: trees.weights.astype(kind))
    fixed = (limits, trees.nodes, trees.roots, trees.leaves, trees.columns, weights)
    return ctx.add(
        TreeEnsemble(columns=width, aggregate=aggregate.lower(), depth=trees.depth),
        [rows, *(ctx.constant(a) for a in fixed)],
    )


def _add_base(ctx: NodeContext, scores: Value, base: Array) -> Value:
    return ctx.plus(scores, ctx.constant(base.astype(scores.dtype.np).reshape(1, -1)))


def _mask_unused_classes(ctx: NodeContext, scores: Value, trees: Trees, base: Array) -> Value:
    """Set scores of classes without leaves and base values to -inf, so that they are never the largest."""
    named = np.zeros(scores.shape[1], bool)
    named[trees.columns] = True
    if named.all() or base.size == scores.shape[1] or not named.any():
        return scores
    kept = [
        column(ctx, scores, i) if n else ctx.full(-np.inf, scores.dtype, (scores.shape[0], 1))
        for i, n in enumerate(named)
    ]
    return ctx.concat(kept, 1)
