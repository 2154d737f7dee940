"""Importers of non-maximum suppression."""

from __future__ import annotations

import math

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.nms import NonMaxSuppression
from ...ops.topk import TopK
from .common import Found, PaddleNode, paddle_op
from .detection import image_of_rows


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

    All classes of an image are ranked together to keep its keep_top_k best; the rows keep their order. Regions of
    several images, with boxes[M,C,4] of each class and scores[M,C], give rows by image, class and region.
    """
    boxes, scores = n.value("bboxes"), n.value("scores")
    regions = n.maybe("rois_num")
    if boxes.shape[-1] != 4 or len(boxes.shape) != 3 or len(scores.shape) != (3 if regions is None else 2):
        raise n.refuse(f"takes boxes {boxes.type} and scores {scores.type}; [images, boxes, 4] are known, and regions")
    if float(n.number("nms_eta", default=1.0)) < 1:
        raise n.refuse("lowers its threshold as it goes (nms_eta)")
    if regions is not None:
        scores = _by_image(n, scores, regions)
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
    tried = scores
    if regions is not None:  # each class has boxes of its own
        own = n.expand(n.unsqueeze(n.transpose(shown, (1, 0, 2)), [0]), (batch, classes, count, 4))
        shown = n.reshape(own, (batch * classes, count, 4))
        tried = n.reshape(scores, (batch * classes, 1, count))
    rows, found = n.add_many(op, [shown, tried], 2)
    total = rows.shape[0]

    def column(i: int) -> Value:
        # Rows behind the last are -1.
        return n.elementwise(lambda v: v.call("max", 0), n.squeeze(n.slice_axis(rows, 1, i, i + 1), [1]))

    image, label, box = (column(i) for i in range(3))
    if regions is not None:
        label = n.elementwise(lambda i: i.call("mod", classes), image)
        image = n.elementwise(lambda i: i / classes, image)
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
    # The kept rows in order, then the rest. Rows are ordered by image, class and score already.
    if regions is None:
        order = n.elementwise(lambda o: o.call("min", total - 1), _in_order(n, place, is_row, total)[0])
    else:
        order = n.gather(n.reshape(place, (batch * best,)), _in_order(n, n.gather(flat, place, 0), is_row)[1], 0)
    image, label, box, score = (n.gather(v, order, 0) for v in (image, label, box, score))
    if regions is None:
        place_of = n.elementwise(lambda i, b: i * count + b, image, box)
    else:
        place_of = n.elementwise(lambda b, c: b * classes + c, box, label)
    corners = n.gather(n.reshape(boxes, (boxes.type.count // 4, 4)), place_of, 0)
    made = n.concat([n.unsqueeze(n.cast(v, boxes.dtype), [1]) for v in (label, score)] + [corners], 1)
    number = n.reduce(counts, "sum", [0])
    index = n.unsqueeze(n.cast(place_of, DType.INT32), [1])
    return {
        "out": n.trimmed(made, number),
        "index": n.trimmed(index, number),
        "nms_rois_num": n.cast(counts, DType.INT32),
    }


def _in_order(n: PaddleNode, keys: Value, is_row: Value, most: int = 2**62) -> tuple[Value, Value]:
    """Return the keys of rows from the least to the greatest, then `most` for the others; and their places."""
    flat = (keys.type.count,)
    held = n.elementwise(lambda k, r: where(r.eq(0), most, k), keys, is_row)
    values, places = n.add_many(TopK(k=flat[0], axis=0, largest=False, sorted=True), [n.reshape(held, flat)], 2)
    return values, places


def _by_image(n: PaddleNode, scores: Value, counts: Value) -> Value:
    """Return the scores[M,C] of regions as [images, C, M], with those of other images put away."""
    rows, classes = scores.shape
    images = n.reshape(image_of_rows(n, counts, rows), (1, 1, rows))

    def own(s: Sym, i: Sym) -> Sym:
        return where(i.eq(coord(s.builder, 0).cast(DType.INT64)), s, -2 * _NOTHING)

    turned = n.unsqueeze(n.transpose(scores, (1, 0)), [0])
    return n.elementwise(own, turned, images, shape=(counts.type.count, classes, rows))


@paddle_op("matrix_nms", operands="bboxes scores", outputs="out index rois_num")
def matrix_nms(n: PaddleNode) -> Found:
    """Import matrix_nms of boxes[B,S,4] and scores[B,C,S]: rows (class, score, corners) by image and falling score.

    No box is suppressed: the score of each is lowered by its overlap with better ones of its class.
    """
    boxes, scores = n.value("bboxes"), n.value("scores")
    if len(boxes.shape) != 3 or boxes.shape[-1] != 4 or len(scores.shape) != 3:
        raise n.refuse(f"takes boxes {boxes.type} and scores {scores.type}; [images, boxes, 4] are known")
    batch, classes, count = scores.shape
    most, kept = int(n.number("nms_top_k")), int(n.number("keep_top_k"))
    wanted = count if most < 0 else min(most, count)
    ranked, place = n.add_many(TopK(k=wanted, axis=2, largest=True, sorted=True), [scores], 2)
    place = n.elementwise(lambda p: coord(p.builder, 0).cast(p.dtype) * count + p, place)
    corners = n.gather(n.reshape(boxes, (batch * count, 4)), place, 0)
    lowered = n.binary("mul", ranked, _decay(n, corners))
    first, last = float(n.number("score_threshold")), float(n.number("post_threshold", default=0.0))
    background = int(n.number("background_label", default=0))

    def keep(s: Sym, d: Sym) -> Sym:
        good = (s > first).call("and", d > last)
        if 0 <= background < classes:
            good = good.call("and", coord(s.builder, 1).eq(background).call("not"))
        return where(good, d, -2 * _NOTHING)

    every = (batch, classes * wanted)
    best = every[1] if kept < 0 else min(kept, every[1])
    held = n.reshape(n.elementwise(keep, ranked, lowered), every)
    score, at = n.add_many(TopK(k=best, axis=1, largest=True, sorted=True), [held], 2)
    is_row = n.elementwise(lambda s: (s > -_NOTHING).cast(DType.INT64), score)
    counts = n.reduce(is_row, "sum", [1], keepdims=False)
    # Rows of the first image come first.
    rank = n.elementwise(lambda r: coord(r.builder, 0).cast(r.dtype) * best + coord(r.builder, 1).cast(r.dtype), is_row)
    order = _in_order(n, rank, is_row)[1]
    flat = n.elementwise(lambda a: coord(a.builder, 0).cast(a.dtype) * every[1] + a, at)
    flat, score = (n.gather(n.reshape(v, (batch * best,)), order, 0) for v in (flat, score))
    label = n.elementwise(lambda f: f.call("mod", every[1]) / wanted, flat)
    index = n.gather(n.reshape(place, (batch * every[1],)), flat, 0)
    made = [n.unsqueeze(n.cast(v, boxes.dtype), [1]) for v in (label, score)]
    made.append(n.gather(n.reshape(boxes, (batch * count, 4)), index, 0))
    number = n.reduce(counts, "sum", [0])
    return {
        "out": n.trimmed(n.concat(made, 1), number),
        "index": n.trimmed(n.unsqueeze(n.cast(index, DType.INT32), [1]), number),
        "rois_num": n.cast(counts, DType.INT32),
    }


def _decay(n: PaddleNode, corners: Value) -> Value:
    """Return the factor of each score by the overlaps of corners[B,C,K,4], the best of a class first."""
    extra = 0.0 if n.is_set("normalized", default=True) else 1.0
    gaussian, sigma = n.is_set("use_gaussian"), float(n.number("gaussian_sigma", default=2.0))
    edges = [n.slice_axis(corners, 3, i, i + 1) for i in range(4)]  # x and y of both corners, of [B,C,K,1]
    others = [n.transpose(e, (0, 1, 3, 2)) for e in edges]

    def area(x: Sym, y: Sym, right: Sym, below: Sym) -> Sym:
        return where((right < x).call("or", below < y), 0.0, (right - x + extra) * (below - y + extra))

    def overlap(*e: Sym) -> Sym:
        a, b = e[:4], e[4:]
        width = a[2].call("min", b[2]) - a[0].call("max", b[0])
        height = a[3].call("min", b[3]) - a[1].call("max", b[1])
        both = (width + extra) * (height + extra)
        apart = (width < 0).call("or", height < 0)
        better = coord(e[0].builder, 3) < coord(e[0].builder, 2)
        return where(better.call("and", apart.call("not")), both / (area(*a) + area(*b) - both), 0.0)

    overlaps = n.elementwise(overlap, *edges, *others)
    worst = n.transpose(n.reduce(overlaps, "max", [3]), (0, 1, 3, 2))

    def factor(v: Sym, w: Sym) -> Sym:
        f = ((w * w - v * v) * sigma).call("exp") if gaussian else (1.0 - v) / (1.0 - w)
        # A box that lies on a better one gives no number: it is left out, as those behind are.
        lowers = (coord(v.builder, 3) < coord(v.builder, 2)).call("and", f < 1)
        return where(lowers, f, 1.0)

    return n.reshape(n.reduce(n.elementwise(factor, overlaps, worst), "min", [3]), corners.shape[:3])


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
