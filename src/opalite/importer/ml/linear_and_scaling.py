"""Numeric operators of ai.onnx.ml: scaling, normalising, imputing, thresholds, feature vectors, linear models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ModelError, ShapeError
from ...expr.trace_function import Sym, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext
from .classifier_scores import (
    ML,
    Array,
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
    values = [v for v in ctx.inputs if v is not None]
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
    if not intercepts.size:
        return product
    if intercepts.size != targets:
        raise ShapeError(f"{ctx.label} has {intercepts.size} intercepts for {targets} targets")
    return ctx.elementwise(lambda p, i: p + i, product, ctx.constant(intercepts))
