"""Importers of non-maximum suppression and of the post-processing of detections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.nms import NonMaxSuppression
from ...ops.topk import TopK
from ..walk.node_context import NodeContext
from .common import info_of, tflite_op, unsupported
from .custom import flex_options

_NEVER = float(np.finfo(np.float32).min)


@tflite_op("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(ctx: NodeContext) -> list[Value]:
    """Import NON_MAX_SUPPRESSION: the kept boxes by falling score, with V5 their scores, and how many there are."""
    boxes, scores, most = ctx.input(0), ctx.input(1), int(ctx.const_scalar(2))
    if ctx.op_type.endswith("V5") and float(ctx.const_scalar(5)):
        raise unsupported(ctx, f"lowers scores softly (sigma {ctx.const_scalar(5)}); only sigma 0 is")
    if len(boxes.shape) != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise ShapeError(f"{ctx.label} needs boxes [n, 4] and scores [n], got {boxes.type} and {scores.type}")
    place, count = _kept(ctx, boxes, scores, most, float(ctx.const_scalar(3)), float(ctx.const_scalar(4)))
    indices = ctx.cast(_valid(ctx, place, count, 0), DType.INT32)
    found = [indices]
    if ctx.op_type.endswith("V5"):
        found.append(_valid(ctx, ctx.gather(scores, indices, 0), count, 0))
    return [*(_lengthened(ctx, v, most) for v in found), ctx.reshape(ctx.cast(count, DType.INT32), ())]


def _kept(ctx: NodeContext, boxes: Value, scores: Value, most: int, iou: float, least: float) -> tuple[Value, Value]:
    """Return (numbers of the kept boxes, how many of them count)."""
    op = NonMaxSuppression(center_point_box=0, max_output=most, iou=iou, score=least)
    n = boxes.shape[0]
    rows, count = ctx.add_many(op, [ctx.reshape(boxes, (1, n, 4)), ctx.reshape(scores, (1, 1, n))], 2)
    return ctx.squeeze(ctx.slice_axis(rows, 1, 2, 3), (1,)), count


def _valid(ctx: NodeContext, values: Value, count: Value, other: float) -> Value:
    """Return `values` with `other` in all rows from `count` on."""
    shape = (1,) * len(values.shape)

    def keep(v: Sym, n: Sym) -> Sym:
        return where(coord(v.builder, 0) < n, v, other)

    return ctx.elementwise(keep, values, ctx.reshape(ctx.cast(count, DType.INT64), shape))


def _lengthened(ctx: NodeContext, v: Value, rows: int) -> Value:
    """Return `v` with zeros behind its rows, or only the first ones: `rows` in all."""
    if v.shape[0] > rows:
        return ctx.slice_axis(v, 0, 0, rows)
    return ctx.pad_zeros(v, (*(0,) * len(v.shape), rows - v.shape[0], *(0,) * (len(v.shape) - 1)))


@tflite_op("TFLite_Detection_PostProcess", moves=True)
def detection_postprocess(ctx: NodeContext) -> list[Value]:
    """Import TFLite_Detection_PostProcess: boxes, classes, scores and number of detections.

    Encodings [1,n,4...] are decoded by anchors [n,4]; suppression is by class (use_regular_nms) or by the best class.
    """
    options = flex_options(ctx)
    encodings, predictions, anchors = (_real(ctx, i) for i in range(3))
    classes = int(options.get("num_classes", 0))
    if len(encodings.shape) != 3 or len(predictions.shape) != 3 or encodings.shape[0] != 1:
        raise ShapeError(f"{ctx.label} needs boxes and scores of one picture, got {encodings.type}, {predictions.type}")
    n, offset = encodings.shape[1], predictions.shape[2] - classes
    if offset not in (0, 1) or classes < 1 or anchors.shape[0] != n:
        raise ShapeError(f"{ctx.label} has {classes} classes and anchors {anchors.type} for {predictions.type}")
    boxes = _decoded(ctx, ctx.reshape(ctx.slice_axis(encodings, 2, 0, 4), (n, 4)), anchors, options)
    scores = ctx.slice_axis(ctx.reshape(predictions, (n, classes + offset)), 1, offset, classes + offset)
    detect = _by_class if options.get("use_regular_nms", False) else _by_best_class
    which, kinds, found, count, each = detect(ctx, boxes, scores, options)
    rows = int(options.get("max_detections", 0)) * int(options.get("max_classes_per_detection", 1))
    filled = ctx.elementwise(lambda c: c * each, count)
    given = (ctx.gather(boxes, which, 0), ctx.cast(kinds, DType.FLOAT32), found)
    outs = [_valid(ctx, v, filled, 0) for v in given]
    outs = [_lengthened(ctx, v, rows) for v in outs]
    return [*(ctx.reshape(v, (1, *v.shape)) for v in outs), ctx.cast(ctx.reshape(count, (1,)), DType.FLOAT32)]


def _real(ctx: NodeContext, i: int) -> Value:
    """Return input `i` as floats."""
    x, info = ctx.input(i), info_of(ctx, i)
    if x.dtype.is_float:
        return x
    if info is None or info.quantization is None or info.quantization.scale.size != 1:
        raise unsupported(ctx, f"has input {i} of {x.dtype} without one scale")
    scale, zero = float(info.quantization.scale[0]), int(info.quantization.zero_point[0])
    return ctx.elementwise(lambda v: (v.cast(DType.FLOAT32) - zero) * scale, x)


def _decoded(ctx: NodeContext, boxes: Value, anchors: Value, options: Mapping[str, Any]) -> Value:
    """Return corners [n, 4] (top, left, bottom, right) of encoded centres and sizes."""
    scales = [float(options.get(f"{k}_scale", 1.0)) for k in "yxhw"]
    b, a = (ctx.split_axis(v, 1, (1,) * 4) for v in (boxes, anchors))
    sides: list[Value] = []
    for sign in (-0.5, 0.5):
        for k in (0, 1):

            def side(centre: Sym, size: Sym, at: Sym, of: Sym, k: int = k, sign: float = sign) -> Sym:
                middle = centre * (1 / scales[k]) * of + at
                return middle + (size * (1 / scales[k + 2])).call("exp") * of * sign

            sides.append(ctx.elementwise(side, b[k], b[k + 2], a[k], a[k + 2]))
    return ctx.concat(sides, 1)


def _thresholds(options: Mapping[str, Any]) -> tuple[float, float]:
    return float(options.get("nms_iou_threshold", 0.0)), float(options.get("nms_score_threshold", 0.0))


def _by_best_class(
    ctx: NodeContext, boxes: Value, scores: Value, options: Mapping[str, Any]
) -> tuple[Value, Value, Value, Value, int]:
    """Return box, class and score of each row, how many boxes were kept, and rows for each: by the best class."""
    each = min(int(options.get("max_classes_per_detection", 1)), scores.shape[1])
    values, kinds = ctx.add_many(TopK(k=each, axis=1, largest=True, sorted=True), [scores], 2)
    if each != int(options.get("max_classes_per_detection", 1)):
        raise unsupported(ctx, f"asks for {options['max_classes_per_detection']} of {scores.shape[1]} classes")
    best = ctx.squeeze(ctx.slice_axis(values, 1, 0, 1), (1,))
    place, count = _kept(ctx, boxes, best, int(options.get("max_detections", 0)), *_thresholds(options))
    place = _valid(ctx, place, count, 0)
    rows = place.shape[0] * each
    which = ctx.reshape(ctx.expand(ctx.reshape(place, (place.shape[0], 1)), (place.shape[0], each)), (rows,))
    found = [ctx.reshape(ctx.gather(v, place, 0), (rows,)) for v in (kinds, values)]
    return which, found[0], found[1], count, each


def _by_class(
    ctx: NodeContext, boxes: Value, scores: Value, options: Mapping[str, Any]
) -> tuple[Value, Value, Value, Value, int]:
    """Return the same as `_by_best_class`: boxes compete within each class."""
    most, (n, classes) = int(options.get("max_detections", 0)), scores.shape
    iou, least = _thresholds(options)
    each = min(int(options.get("detections_per_class", 100)), most)
    op = NonMaxSuppression(center_point_box=0, max_output=each, iou=iou, score=least)
    by_class = ctx.reshape(ctx.transpose(scores, (1, 0)), (1, classes, n))
    rows, count = ctx.add_many(op, [ctx.reshape(boxes, (1, n, 4)), by_class], 2)
    kind, box = (_valid(ctx, ctx.squeeze(ctx.slice_axis(rows, 1, k, k + 1), (1,)), count, 0) for k in (1, 2))
    flat = ctx.elementwise(lambda k, b: k * n + b, kind, box)
    found = _valid(ctx, ctx.gather(ctx.reshape(by_class, (classes * n,)), flat, 0), count, _NEVER)
    k = min(most, found.shape[0])
    top, place = ctx.add_many(TopK(k=k, axis=0, largest=True, sorted=True), [found], 2)
    fewer = ctx.elementwise(lambda c: c.call("min", k), count)
    return ctx.gather(box, place, 0), ctx.gather(kind, place, 0), top, fewer, 1
