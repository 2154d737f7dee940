"""Importers of region proposals: boxes from anchors, and their levels of a feature pyramid."""

from __future__ import annotations

import math

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.nms import NonMaxSuppression
from ...ops.topk import TopK
from .common import Found, PaddleNode, paddle_op
from .detection import image_of_rows

_NOTHING = 1e9
"""Scores of boxes that are none of the candidates are below minus this."""

_LARGEST = math.log(1000.0 / 16.0)
"""Largest logarithm of a box's size in units of its anchor's."""


@paddle_op(
    *("generate_proposals", "generate_proposals_v2"),
    operands="scores bbox_deltas im_shape anchors variances",
    outputs="rpn_rois rpn_roi_probs rpn_rois_num",
)
def generate_proposals(n: PaddleNode) -> Found:
    """Import generate_proposals: the best boxes of each image that overlap little, by image and falling score.

    An image without any gets a box of zeros.
    """
    if n.maybe("im_info") is not None:
        raise n.refuse("is that of Paddle 1, which takes im_info: export the model by Paddle 2 or 3")
    if float(n.number("eta", default=1.0)) < 1 or float(n.number("nms_thresh", default=0.5)) <= 0:
        raise n.refuse("lowers its threshold as it goes (eta), or has none (nms_thresh)")
    scores, deltas = n.value("scores"), n.value("bbox_deltas")
    if len(scores.shape) != 4 or deltas.shape != (scores.shape[0], 4 * scores.shape[1], *scores.shape[2:]):
        raise ShapeError(f"{n.label} has scores {scores.type} for boxes {deltas.type}: 4 numbers to a score")
    batch, count = scores.shape[0], scores.type.count // scores.shape[0]
    ranked = n.reshape(n.transpose(scores, (0, 2, 3, 1)), (batch, count))
    moves = n.reshape(n.transpose(deltas, (0, 2, 3, 1)), (batch * count, 4))
    best, last = (int(n.number(*names)) for names in (_FIRST, _LAST))
    best = count if best <= 0 else min(best, count)
    ranked, place = n.add_many(TopK(k=best, axis=1, largest=True, sorted=True), [ranked], 2)
    whole = n.elementwise(lambda p: coord(p.builder, 0).cast(p.dtype) * count + p, place)
    anchors, spread = (n.gather(n.reshape(n.value(v), (count, 4)), place, 0) for v in ("anchors", "variances"))
    extra = 1.0 if n.is_set("pixel_offset", default=True) else 0.0
    boxes = _clipped(n, _decoded(n, n.gather(moves, whole, 0), anchors, spread, extra), extra)
    good = _large(n, boxes, extra)
    none = n.elementwise(lambda g: g.eq(0), n.reduce(n.cast(good, DType.INT32), "max", [1]))
    boxes = n.elementwise(lambda b, e: where(e, 0.0, b), boxes, n.unsqueeze(none, [2]))

    def tried(s: Sym, g: Sym, e: Sym) -> Sym:
        first = e.call("and", coord(s.builder, 1).eq(0))
        return where(first, 0.0, where(g, s, -2 * _NOTHING))

    held = n.elementwise(tried, ranked, good, none)
    shown = boxes
    if extra:  # both edges belong to a box
        low, high = n.slice_axis(boxes, 2, 0, 2), n.slice_axis(boxes, 2, 2, 4)
        shown = n.concat([low, n.elementwise(lambda h: h + 1, high)], 2)
    op = NonMaxSuppression(
        center_point_box=0,
        max_output=min(last, best) if last > 0 else best,
        iou=float(n.number("nms_thresh", default=0.5)),
        score=-_NOTHING,
    )
    rows, found = n.add_many(op, [shown, n.unsqueeze(held, [1])], 2)
    image, at = (n.squeeze(n.slice_axis(rows, 1, i, i + 1), [1]) for i in (0, 2))
    flat = n.elementwise(lambda i, a: (i * best + a).call("max", 0), image, at)

    def mine(i: Sym) -> Sym:
        return i.eq(coord(i.builder, 0).cast(DType.INT64)).cast(DType.INT64)

    total = rows.shape[0]
    own = n.elementwise(
        mine, n.reshape(image, (1, total)), shape=(batch, total)
    )  # rows behind the last are of image -1
    probs = n.gather(n.reshape(held, (batch * best, 1)), flat, 0)
    return {
        "rpn_rois": n.trimmed(n.gather(n.reshape(boxes, (batch * best, 4)), flat, 0), found),
        "rpn_roi_probs": n.trimmed(probs, found),
        "rpn_rois_num": n.cast(n.reduce(own, "sum", [1], keepdims=False), DType.INT32),
    }


_FIRST, _LAST = ("pre_nms_top_n", "pre_nms_topN"), ("post_nms_top_n", "post_nms_topN")


def _decoded(n: PaddleNode, moves: Value, anchors: Value, spread: Value, extra: float) -> Value:
    """Return the boxes [B,K,4] that moves and logarithms of sizes make of their anchors."""

    def half(v: Value, i: int) -> Value:
        return n.slice_axis(v, 2, i, i + 2)

    low, high = half(anchors, 0), half(anchors, 2)
    size = n.elementwise(lambda a, b: b - a + extra, low, high)
    centre = n.elementwise(lambda a, s, m, f: f * m * s + (a + 0.5 * s), *(low, size, half(moves, 0), half(spread, 0)))
    extent = n.elementwise(
        lambda s, m, f: (f * m).call("min", _LARGEST).call("exp") * s, *(size, half(moves, 2), half(spread, 2))
    )
    edges = [
        n.elementwise(lambda c, e: c - e * 0.5, centre, extent),
        n.elementwise(lambda c, e: c + e * 0.5 - extra, centre, extent),
    ]
    return n.concat(edges, 2)


def _clipped(n: PaddleNode, boxes: Value, extra: float) -> Value:
    """Return the boxes within their image, whose height and width are rows of im_shape."""
    size = n.value("im_shape")
    width, height = (n.slice_axis(size, 1, i, i + 1) for i in (1, 0))
    limit = n.unsqueeze(n.concat([width, height, width, height], 1), [1])
    return n.elementwise(lambda b, m: b.call("min", m - extra).call("max", 0), boxes, limit)


def _large(n: PaddleNode, boxes: Value, extra: float) -> Value:
    """Return which boxes [B,K] are at least min_size wide and high, and begin within their image."""
    least = max(1.0, float(n.number("min_size", default=0.1)))
    edges = [n.squeeze(n.slice_axis(boxes, 2, i, i + 1), [2]) for i in range(4)]
    size = n.value("im_shape")
    height, width = (n.slice_axis(size, 1, i, i + 1) for i in (0, 1))

    def large(x: Sym, y: Sym, right: Sym, below: Sym, high: Sym, wide: Sym) -> Sym:
        w, h = right - x + extra, below - y + extra
        good = (w >= least).call("and", h >= least)
        if extra:
            good = good.call("and", (x + w / 2.0 <= wide).call("and", y + h / 2.0 <= high))
        return good

    return n.elementwise(large, *edges, height, width)


@paddle_op(
    "distribute_fpn_proposals",
    operands="fpn_rois rois_num",
    outputs="multi_fpn_rois multi_level_ro_is_num restore_index",
)
def distribute_fpn_proposals(n: PaddleNode) -> Found:
    """Import distribute_fpn_proposals: the regions of each level, how many each image has there, and the way back."""
    rois, counts = n.value("fpn_rois"), n.maybe("rois_num")
    if counts is None:
        raise n.refuse("has regions of a LoD; it needs rois_num")
    first, last = int(n.number("min_level")), int(n.number("max_level"))
    if last <= first:
        raise ShapeError(f"{n.label} has the levels {first} to {last}; two or more are expected")
    refer, scale = int(n.number("refer_level")), float(n.number("refer_scale"))
    extra = 1.0 if n.is_set("pixel_offset", default=True) else 0.0
    rows, images = rois.shape[0], counts.type.count
    edges = [n.squeeze(n.slice_axis(rois, 1, i, i + 1), [1]) for i in range(4)]

    def level_of(x: Sym, y: Sym, right: Sym, below: Sym) -> Sym:
        area = (right - x + extra) * (below - y + extra)
        side = where((right < x).call("or", below < y), 0.0, area).call("sqrt")
        above: Sym | int = first
        for k in range(first + 1, last + 1):
            above = (side / scale + 1e-6 >= 2.0 ** (k - refer)).cast(DType.INT64) + above
        assert isinstance(above, Sym), "there are two levels or more"
        return above

    level, image = n.elementwise(level_of, *edges), image_of_rows(n, counts, rows)
    key = n.elementwise(lambda v: v * rows + coord(v.builder, 0).cast(DType.INT64), level)

    def before(a: Sym, b: Sym) -> Sym:
        return (b < a).cast(DType.INT64)

    ranks = n.elementwise(before, n.reshape(key, (rows, 1)), n.reshape(key, (1, rows)))
    restore = n.cast(n.reduce(ranks, "sum", [1]), DType.INT32)
    levels, numbers = [], []
    for k in range(first, last + 1):
        here = n.elementwise(lambda v, k=k: v.eq(k).cast(DType.INT64), level)
        place = n.elementwise(lambda h: where(h.eq(0), rows, coord(h.builder, 0).cast(DType.INT64)), here)
        place, _ = n.add_many(TopK(k=rows, axis=0, largest=False, sorted=True), [place], 2)
        kept = n.gather(rois, n.elementwise(lambda p: p.call("min", rows - 1), place), 0)
        levels.append(n.trimmed(kept, n.reduce(here, "sum", [0])))

        def mine(h: Sym, i: Sym) -> Sym:
            return where(i.eq(coord(h.builder, 0).cast(DType.INT64)), h, 0)

        own = n.elementwise(mine, *(n.reshape(v, (1, rows)) for v in (here, image)), shape=(images, rows))
        numbers.append(n.cast(n.reduce(own, "sum", [1], keepdims=False), DType.INT32))
    return {"multi_fpn_rois": levels, "multi_level_ro_is_num": numbers, "restore_index": restore}
