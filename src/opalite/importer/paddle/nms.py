"""Importers of non-maximum suppression."""

from __future__ import annotations

import math

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.nms import NonMaxSuppression
from ...ops.topk import TopK
from .common import Found, PaddleNode, paddle_op


@paddle_op("nms", outputs="out")
def nms(n: PaddleNode) -> Found:
    """Import nms of boxes that are sorted already: the numbers of those kept."""
    boxes = n.value("x", "boxes")
    count = boxes.shape[0]
    falling = n.elementwise(
        lambda b: -(coord(b.builder, 2).cast(b.dtype)), n.full(0, boxes.dtype, (1, 1, 1)), shape=(1, 1, count)
    )
    op = NonMaxSuppression(
        center_point_box=0, max_output=count, iou=float(n.number("iou_threshold", "threshold")), score=None
    )
    rows, kept = n.add_many(op, [n.unsqueeze(boxes, [0]), falling], 2)
    return n.trimmed(n.squeeze(n.slice_axis(rows, 1, 2, 3), [1]), kept)


_NMS = ("multiclass_nms", "multiclass_nms2", "multiclass_nms3")


@paddle_op(*_NMS, operands="bboxes scores rois_num", outputs="out index nms_rois_num")
def multiclass_nms(n: PaddleNode) -> Found:
    """Import multiclass_nms of boxes[B,S,4] and scores[B,C,S]: rows (class, score, corners) by image, class and score.

    All classes of an image are ranked together to keep its keep_top_k best; the rows keep their order.
    """
    boxes, scores = n.value("bboxes"), n.value("scores")
    if n.maybe("rois_num") is not None or len(scores.shape) != 3 or boxes.shape[-1] != 4:
        raise n.refuse(f"takes boxes {boxes.type} of regions by a LoD; [images, boxes, 4] are known")
    if float(n.number("nms_eta", default=1.0)) < 1:
        raise n.refuse("lowers its threshold as it goes (nms_eta)")
    batch, classes, count = scores.shape
    most, kept = int(n.number("nms_top_k", default=-1)), int(n.number("keep_top_k", default=-1))
    wanted = count if most < 0 else min(most, count)
    scores = _candidates(n, scores, wanted, float(n.number("score_threshold", default=0.0)))
    if not n.is_set("normalized", default=True):  # both edges belong to a box
        low, high = n.slice_axis(boxes, 2, 0, 2), n.slice_axis(boxes, 2, 2, 4)
        shown = n.concat([low, n.elementwise(lambda h: h + 1, high)], 2)
    else:
        shown = boxes
    threshold = float(n.number("nms_threshold", default=0.3))
    op = NonMaxSuppression(center_point_box=0, max_output=wanted, iou=threshold, score=-_NOTHING)
    rows, found = n.add_many(op, [shown, scores], 2)
    total = rows.shape[0]

    def column(i: int) -> Value:
        # Rows behind the last are -1.
        return n.elementwise(lambda v: v.call("max", 0), n.squeeze(n.slice_axis(rows, 1, i, i + 1), [1]))

    image, label, box = (column(i) for i in range(3))
    flat = n.elementwise(lambda i, c, b: (i * classes + c) * count + b, image, label, box)
    score = n.gather(n.reshape(scores, (batch * classes * count,)), flat, 0)
    best = total if kept < 0 else min(kept, total)

    def of_image(s: Sym, i: Sym, f: Sym) -> Sym:
        here = coord(s.builder, 1).cast(DType.INT64) < f
        return where(here.call("and", i.eq(coord(s.builder, 0).cast(DType.INT64))), s, -2 * _NOTHING)

    columns = [n.reshape(v, (1, total)) for v in (score, image)]
    by_image = n.elementwise(of_image, *columns, n.reshape(found, (1, 1)), shape=(batch, total))
    ranked, place = n.add_many(TopK(k=best, axis=1, largest=True, sorted=True), [by_image], 2)
    is_row = n.elementwise(lambda s: (s > -_NOTHING).cast(DType.INT64), ranked)
    counts = n.reduce(is_row, "sum", [1], keepdims=False)
    # Rows are ordered by image already: the places of all kept rows, in order, then the rest.
    order = n.elementwise(lambda p, r: where(r.eq(0), total, p), place, is_row)
    order, _ = n.add_many(
        TopK(k=batch * best, axis=0, largest=False, sorted=True), [n.reshape(order, (batch * best,))], 2
    )
    order = n.elementwise(lambda o: o.call("min", total - 1), order)
    image, label, box, score = (n.gather(v, order, 0) for v in (image, label, box, score))
    place_of = n.elementwise(lambda i, b: i * count + b, image, box)
    corners = n.gather(n.reshape(boxes, (batch * count, 4)), place_of, 0)
    made = n.concat([n.unsqueeze(n.cast(v, boxes.dtype), [1]) for v in (label, score)] + [corners], 1)
    number = n.reduce(counts, "sum", [0])
    index = n.unsqueeze(n.cast(place_of, DType.INT32), [1])
    return {
        "out": n.trimmed(made, number),
        "index": n.trimmed(index, number),
        "nms_rois_num": n.cast(counts, DType.INT32),
    }


_NOTHING = 1e9
"""Scores of boxes that are none of the candidates are below minus this."""


def _candidates(n: PaddleNode, scores: Value, wanted: int, threshold: float) -> Value:
    """Return the scores with all but the `wanted` best of each class, those above the threshold, put away."""
    background = int(n.number("background_label", default=0))
    _, classes, count = scores.shape
    best = None
    if wanted < count:
        ranked, _ = n.add_many(TopK(k=wanted, axis=2, largest=True, sorted=True), [scores], 2)
        best = n.slice_axis(ranked, 2, wanted - 1, wanted)
    if not math.isfinite(threshold):
        raise ShapeError(f"{n.label} has the score_threshold {threshold}")

    def keep(s: Sym, least: Sym | None) -> Sym:
        good = s > threshold
        if least is not None:
            good = good.call("and", s >= least)
        if 0 <= background < classes:
            good = good.call("and", coord(s.builder, 1).eq(background).call("not"))
        return where(good, s, -2 * _NOTHING)

    return n.elementwise(keep, scores, best)
