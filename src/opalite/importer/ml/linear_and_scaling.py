"""Numeric operators of ai.onnx.ml: scaling, normalising, imputing, feature vectors, linear models, vector machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ModelError, ShapeError
from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ...ops.pairwise_distance import PairwiseCoupling, PairwiseDistance
from ..walk.node_context import NodeContext, onnx_op
from .classifier_scores import (
    ML,
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


def _columns(ctx: NodeContext, x: Value, *lists: str) -> int:
    """Return the number of features of x; lists of several numbers must match it."""
    features = x.shape[1] if len(x.shape) > 1 else x.type.count
    for name in lists:
        count = len(ctx.attr(name, ()))
        if count not in (0, 1, features):
            raise ShapeError(f"{ctx.label} has {count} numbers in {name}; x {x.type} has {features} features")
    return features


def _by_feature(ctx: NodeContext, x: Value, features: int) -> Value:
    """Reshape x to [rows, features], for operators with one number per feature."""
    return ctx.reshape(x, (x.type.count // max(1, features), features))


@onnx_op("Scaler", domain=ML)
def scaler(ctx: NodeContext) -> Value:
    """Import Scaler: (x - offset) * scale in float32; each is one number, or one per feature."""
    x = ctx.input(0)
    features = _columns(ctx, x, "offset", "scale")
    offset = np.asarray(ctx.attr("offset", None) or (0.0,), np.float32)
    scale = np.asarray(ctx.attr("scale", None) or (1.0,), np.float32)

    def scaled(v: Sym, o: Sym, s: Sym) -> Sym:
        wide = DType.FLOAT64 if v.dtype is DType.FLOAT64 else DType.FLOAT32
        return ((v.cast(wide) - o.cast(wide)) * s.cast(wide)).cast(DType.FLOAT32)

    rows = _by_feature(ctx, x, features)
    return ctx.reshape(ctx.elementwise(scaled, rows, ctx.constant(offset), ctx.constant(scale)), x.shape)


@onnx_op("Normalizer", domain=ML)
def normalizer(ctx: NodeContext) -> Value:
    """Import Normalizer: rows divided by maximum, L1 or L2 norm, in float32; rows with norm 0 are unchanged."""
    x, norm = ctx.input(0), ctx.attr("norm", "MAX")
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"{ctx.label} takes [C] or [N,C], got {x.type}")
    rows = ctx.cast(ctx.reshape(x, (1, x.type.count) if len(x.shape) == 1 else x.shape), DType.FLOAT32)
    if not rows.type.count:
        return ctx.reshape(rows, x.shape)
    if norm == "MAX":
        known = ctx.elementwise(lambda v: where(v.call("isnan"), -np.inf, v), rows)
        size = ctx.reduce(known, "max", (1,))
    elif norm in ("L1", "L2"):
        size = ctx.reduce(rows, norm.lower(), (1,))
    else:
        raise ModelError(f"{ctx.label} has norm '{norm}'; known are MAX, L1, L2")
    out = ctx.elementwise(lambda v, s: where(s.eq(0.0), v, v / s), rows, size)
    return ctx.reshape(out, x.shape)


@onnx_op("Imputer", domain=ML)
def imputer(ctx: NodeContext) -> Value:
    """Import Imputer: replaces the value that marks missing data by one number, or by one per feature."""
    x = ctx.input(0)
    kind = "float" if x.dtype.is_float else "int64"
    name = f"imputed_value_{kind}s"
    values = ctx.attr(name, None) or ()
    if not values:
        raise ModelError(f"{ctx.label} takes {x.type}, but has no {name}")
    features = _columns(ctx, x, name)
    given = ctx.attr(f"replaced_value_{kind}")
    missing = 0 if given is None else given
    fill = ctx.constant(np.asarray(values, x.dtype.np))

    def imputed(v: Sym, f: Sym) -> Sym:
        gone = v.call("isnan") if v.dtype.is_float and np.isnan(missing) else v.eq(missing)
        return where(gone, f, v)

    return ctx.reshape(ctx.elementwise(imputed, _by_feature(ctx, x, features), fill), x.shape)


@onnx_op("Binarizer", domain=ML)
def binarizer(ctx: NodeContext) -> Value:
    """Import Binarizer: 1 if x exceeds the threshold, else 0."""
    threshold = ctx.attr("threshold", 0.0)
    return ctx.elementwise(lambda v: (v > threshold).cast(v.dtype), ctx.input(0))


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(ctx: NodeContext) -> Value:
    """Import FeatureVectorizer: concatenates inputs in float32, each cut or zero-padded to its inputdimensions."""
    values = ctx.present
    sizes = ctx.attr("inputdimensions", None) or ()
    if len(sizes) not in (0, len(values)):
        raise ShapeError(f"{ctx.label} has {len(values)} inputs, but {len(sizes)} inputdimensions")
    parts = []
    for i, v in enumerate(values):
        rows = ctx.cast(ctx.reshape(v, (1, v.type.count)) if len(v.shape) < 2 else _flat(ctx, v), DType.FLOAT32)
        size = int(sizes[i]) if sizes else rows.shape[1]
        rows = ctx.slice_axis(rows, 1, 0, min(size, rows.shape[1]))
        parts.append(ctx.pad_zeros(rows, (0, 0, 0, size - rows.shape[1])))
    if len({p.shape[0] for p in parts}) > 1:
        raise ShapeError(f"{ctx.label} joins inputs of {', '.join(str(p.shape[0]) for p in parts)} rows")
    return ctx.concat(parts, 1)


def _flat(ctx: NodeContext, v: Value) -> Value:
    rows = v.shape[0]
    return ctx.reshape(v, (rows, v.type.count // max(1, rows)))


@onnx_op("LinearRegressor", domain=ML)
def linear_regressor(ctx: NodeContext) -> Value:
    """Import LinearRegressor: x W' + intercepts in float32, transformed."""
    return post_transform(ctx, _product(ctx, ctx.attr("targets", 1)), read_post_transform(ctx))


@onnx_op("LinearClassifier", domain=ML)
def linear_classifier(ctx: NodeContext) -> Sequence[Value]:
    """Import LinearClassifier: labels [N] and float32 scores [N, classes]; one row of coefficients gives a sign."""
    labels = class_labels(ctx, "classlabels_ints")
    count = len(ctx.attr("intercepts", ())) or (1 if labels is None else len(labels))
    given = len(ctx.attr("coefficients", ()))
    if given % count:
        raise ShapeError(f"{ctx.label} has {given} coefficients, which is no multiple of its {count} classes")
    scores, name = _product(ctx, count), read_post_transform(ctx)
    if count > 1:
        found = np.arange(count) if labels is None else labels
        if len(found) != count:
            raise ShapeError(f"{ctx.label} has {len(found)} class labels for {count} intercepts")
        return pick_labels(ctx, argmax_column(ctx, scores), found), post_transform(ctx, scores, name)
    if labels is not None and len(labels) != 2:
        raise ShapeError(
            f"{ctx.label} has one row of coefficients, which decides between 2 labels; it has {len(labels)}"
        )
    one = column(ctx, scores, 0)
    position = exceeds(ctx, one, 0.0)
    if labels is None:
        return position, post_transform(ctx, one, name)
    return pick_labels(ctx, position, labels), both_class_scores(ctx, one, name, negate=False)


def _product(ctx: NodeContext, targets: int) -> Value:
    """Return x [N, F] times the coefficients [targets, F], plus intercepts: [N, targets].

    Surplus coefficients are ignored, as in onnxruntime.
    """
    rows = ctx.cast(as_rows(ctx, ctx.input(0)), DType.FLOAT32)
    coefficients: Array = ctx.memo("coefficients", lambda a: np.asarray(a.get("coefficients", ()), np.float32))
    needed = targets * rows.shape[1]
    if coefficients.size < needed:
        raise ShapeError(
            f"{ctx.label} has {coefficients.size} coefficients for {targets} targets; "
            f"x is {rows.type}, which takes {needed}"
        )
    weights = ctx.constant(coefficients[:needed].reshape(targets, -1))
    product = ctx.matmul(rows, weights, trans_b=True)
    intercepts = np.asarray(ctx.attr("intercepts", ()), np.float32)
    if intercepts.size not in (0, targets):
        raise ShapeError(f"{ctx.label} has {intercepts.size} intercepts for {targets} targets")
    return ctx.plus(product, ctx.constant(intercepts) if intercepts.size else None)


# Support vector machines: kernels by distances or products, then votes and probabilities


_NEAR_ONE = 1e-7  # minimum distance of pair probabilities from 0 and 1


@onnx_op("SVMRegressor", domain=ML)
def svm_regressor(ctx: NodeContext) -> Value:
    """Import SVMRegressor: kernels times coefficients plus rho, float32 [N, 1]; its sign for one-class machines."""
    rows = ctx.cast(as_rows(ctx, ctx.input(0)), DType.FLOAT32)
    read_post_transform(ctx)  # a single score is not transformed; this checks the attribute
    count = ctx.attr("n_supports", 0)
    coefficients = _numbers(ctx, "coefficients")
    rho = float(_rho(ctx, 1)[0])
    wanted = count or rows.shape[1]
    if coefficients.size != wanted:
        what = "support vectors" if count else "features of x"
        raise ShapeError(f"{ctx.label} has {coefficients.size} coefficients for {wanted} {what}")
    values = _kernel_values(ctx, rows, count) if count else rows
    score = ctx.matmul(values, ctx.constant(coefficients.reshape(-1, 1)))
    if ctx.attr("one_class", 0):
        return ctx.elementwise(lambda s: (s + rho > 0.0).cast(DType.FLOAT32) * 2.0 - 1.0, score)
    return ctx.elementwise(lambda s: s + rho, score)


@onnx_op("SVMClassifier", domain=ML)
def svm_classifier(ctx: NodeContext) -> Sequence[Value]:
    """Import SVMClassifier: labels [N] and float32 scores, one per pair of classes, or probabilities of classes."""
    rows = ctx.cast(as_rows(ctx, ctx.input(0)), DType.FLOAT32)
    labels = class_labels(ctx, "classlabels_ints")
    if labels is None:
        raise ShapeError(f"{ctx.label} has neither classlabels_strings nor classlabels_ints")
    per_class = np.asarray(ctx.attr("vectors_per_class", None) or (), np.int64)
    if not per_class.sum():
        return _linear(ctx, rows, labels)
    k = len(labels)
    if len(per_class) != k or k < 2 or (per_class < 0).any():
        raise ShapeError(f"{ctx.label} has {k} class labels and vectors_per_class {per_class.tolist()}")
    values = _kernel_values(ctx, rows, int(per_class.sum()))
    weights = ctx.memo("pairs", lambda _: _pair_weights(_numbers(ctx, "coefficients"), per_class, ctx.label))
    pairs = weights.shape[1]
    scores = ctx.matmul(values, ctx.constant(weights))
    scores = ctx.plus(scores, ctx.constant(_rho(ctx, pairs)))
    found = pick_labels(ctx, _winner(ctx, scores, k), labels)
    name = read_post_transform(ctx)
    if ctx.attr("prob_a", None):
        return found, post_transform(ctx, _probabilities(ctx, scores, pairs), name)
    if k == 2:  # a single score of the first class against the second gives both columns
        plain = name in ("NONE", "LOGISTIC")
        both = ctx.concat([ctx.elementwise(lambda s: -s if plain else 1.0 - s, scores), scores], 1)
        return found, post_transform(ctx, both, name) if name in ("LOGISTIC", "PROBIT") else both
    return found, post_transform(ctx, scores, name)


def _linear(ctx: NodeContext, rows: Value, labels: Array) -> Sequence[Value]:
    """Classify without support vectors: one row of coefficients per class, and the first rho for all."""
    k, coefficients = len(labels), _numbers(ctx, "coefficients")
    if coefficients.size != k * rows.shape[1]:
        raise ShapeError(f"{ctx.label} has {coefficients.size} coefficients for {k} classes; x is {rows.type}")
    rho = float(_rho(ctx, 1)[0])
    scores = ctx.matmul(rows, ctx.constant(coefficients.reshape(k, -1)), trans_b=True)
    scores = ctx.elementwise(lambda s: s + rho, scores)
    best = argmax_column(ctx, scores)
    if k == 2 and not ctx.attr("prob_a", None) and scores.type.count:
        # As in onnxruntime, the larger score decides between two classes.
        positive = bool((coefficients >= 0).all())
        top = ctx.reshape(ctx.reduce(scores, "max", (1,)), best.shape)

        def decide(t: Sym, b: Sym) -> Sym:
            return where(t >= 0.5 if positive else t > 0.0, 1, b)

        best = ctx.elementwise(decide, top, best)
    return pick_labels(ctx, best, labels), post_transform(ctx, scores, read_post_transform(ctx))


def _kernel_values(ctx: NodeContext, rows: Value, count: int) -> Value:
    """Return the kernel between every row and every support vector: [N, count]."""
    given = _numbers(ctx, "support_vectors")
    features = rows.shape[1]
    if given.size != count * features:
        raise ShapeError(
            f"{ctx.label} has {given.size} numbers in support_vectors for {count} vectors; x is {rows.type}"
        )
    kind = ctx.choice("kernel_type", "LINEAR", ("LINEAR", "POLY", "RBF", "SIGMOID"))
    gamma, offset, degree = (*_numbers(ctx, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    vectors: Array = ctx.memo("vectors", lambda _: np.ascontiguousarray(given.reshape(count, features).T))
    if kind == "RBF":
        distance = ctx.add(PairwiseDistance(power=2), [rows, ctx.constant(vectors)])
        return ctx.elementwise(lambda d: (d * -gamma).call("exp"), distance)
    product = ctx.matmul(rows, ctx.constant(vectors))
    if kind == "LINEAR":
        return product
    if kind == "SIGMOID":
        return ctx.elementwise(lambda p: (p * gamma + offset).call("tanh"), product)
    return ctx.elementwise(lambda p: _power(p * gamma + offset, degree), product)


def _power(base: Sym, degree: float) -> Sym:
    """Return base ** degree; small integer degrees become products."""
    if degree != int(degree) or not 1 <= degree <= 8:
        return base.call("pow", degree)
    found = base
    for _ in range(int(degree) - 1):
        found = found * base
    return found


def _pair_weights(coefficients: Array, per_class: Array, label: str) -> Array:
    """Return the weight of each support vector for each pair of classes i < j: [vectors, pairs].

    Dual coefficients of class i's vectors against class j are in row j - 1, those of class j's against i in row i.
    """
    k, count = len(per_class), int(per_class.sum())
    if coefficients.size != (k - 1) * count:
        raise ShapeError(f"{label} has {coefficients.size} coefficients for {count} vectors and {k} classes")
    dual = coefficients.reshape(k - 1, count)
    ends = np.cumsum(per_class)
    weights = np.zeros((count, k * (k - 1) // 2), np.float32)
    for pair, (i, j) in enumerate(zip(*np.triu_indices(k, 1), strict=True)):
        of_i, of_j = (slice(ends[c] - per_class[c], ends[c]) for c in (i, j))
        weights[of_i, pair] = dual[j - 1, of_i]
        weights[of_j, pair] = dual[i, of_j]
    return weights


def _winner(ctx: NodeContext, scores: Value, k: int) -> Value:
    """Return the class with most votes, the first if tied; a positive score votes for the pair's first class."""
    if k == 2:
        return ctx.reshape(
            ctx.elementwise(lambda s: (s > 0.0).call("not").cast(DType.INT64), scores), (scores.shape[0],)
        )
    first, second = np.triu_indices(k, 1)
    shift = np.zeros((len(first), k), np.float32)
    each = np.arange(len(first))
    shift[each, first] += 1
    shift[each, second] -= 1
    won = ctx.elementwise(lambda s: (s > 0.0).cast(s.dtype), scores)
    base = np.bincount(second, minlength=k).astype(np.float32)
    votes = ctx.plus(ctx.matmul(won, ctx.constant(shift)), ctx.constant(base))
    return argmax_column(ctx, votes)


def _probabilities(ctx: NodeContext, scores: Value, pairs: int) -> Value:
    """Apply Platt's sigmoid to each pair's score and couple the pairs to class probabilities."""
    a, b = _numbers(ctx, "prob_a"), _numbers(ctx, "prob_b")
    if a.size != pairs or b.size != pairs:
        raise ShapeError(f"{ctx.label} has {a.size} prob_a and {b.size} prob_b for {pairs} pairs of classes")

    def pair(s: Sym, a: Sym, b: Sym) -> Sym:
        p = (-(s * a + b)).call("sigmoid")
        return p.call("max", _NEAR_ONE).call("min", 1 - _NEAR_ONE)

    return ctx.add(PairwiseCoupling(), [ctx.elementwise(pair, scores, ctx.constant(a), ctx.constant(b))])


def _numbers(ctx: NodeContext, name: str) -> Array:
    found: Array = ctx.memo(name, lambda attrs: np.asarray(attrs.get(name) or (), np.float32))
    return found


def _rho(ctx: NodeContext, least: int) -> Array:
    rho = _numbers(ctx, "rho")
    if rho.size < least:
        raise ShapeError(f"{ctx.label} has {rho.size} numbers in rho, it needs {least}")
    return rho if least == 1 else rho[:least]
