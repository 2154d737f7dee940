"""Importers of detection: boxes of anchors, and pooling of regions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import Array, DType, Value
from .common import Found, PaddleNode, paddle_op


@paddle_op("roi_align", operands="x boxes boxes_num")
def roi_align(n: PaddleNode) -> Value:
    """Import roi_align: means of bilinear samples in the bins of each region."""
    return n.emit(
        "RoiAlign",
        [n.value("x"), n.value("boxes", "rois"), _images(n)],
        output_height=int(n.number("pooled_height", default=1)),
        output_width=int(n.number("pooled_width", default=1)),
        spatial_scale=float(n.number("spatial_scale", default=1.0)),
        sampling_ratio=max(0, int(n.number("sampling_ratio", default=-1))),
        coordinate_transformation_mode="half_pixel" if n.is_set("aligned") else "output_half_pixel",
    )


@paddle_op("roi_pool", operands="x boxes boxes_num", outputs="out arg_max")
def roi_pool(n: PaddleNode) -> Value:
    """Import roi_pool: the largest pixel in the bins of each region."""
    boxes = n.value("boxes", "rois")
    images = n.reshape(n.cast(_images(n), boxes.dtype), (boxes.shape[0], 1))
    shape = tuple(int(n.number(name, default=1)) for name in ("pooled_height", "pooled_width"))
    scale = float(n.number("spatial_scale", default=1.0))
    return n.emit("MaxRoiPool", [n.value("x"), n.concat([images, boxes], 1)], pooled_shape=shape, spatial_scale=scale)


def _images(n: PaddleNode) -> Value:
    """Return the image of each region."""
    rows, counts = n.value("boxes", "rois").shape[0], n.maybe("boxes_num", "rois_num")
    if counts is None:
        if n.value("x").shape[0] != 1:
            raise n.refuse("has regions of several images, but not how many each has")
        return n.full(0, DType.INT64, (rows,))
    return image_of_rows(n, counts, rows)


def image_of_rows(n: PaddleNode, counts: Value, rows: int) -> Value:
    """Return the image of each row, where each image has some of them: how many images end before it."""
    ends = n.emit("CumSum", [n.cast(counts, DType.INT64), n.constant(np.int64(0))])

    def ended(end: Sym) -> Sym:
        return (coord(end.builder, 0).cast(DType.INT64) >= end).cast(DType.INT64)

    past = n.elementwise(ended, n.reshape(ends, (1, counts.type.count)), shape=(rows, counts.type.count))
    return n.reduce(past, "sum", [1], keepdims=False)


# Boxes of anchors


@paddle_op("yolo_box", operands="x img_size", outputs="boxes scores")
def yolo_box(n: PaddleNode) -> Found:
    """Import yolo_box: corners and class scores of each anchor at each pixel."""
    x, size = n.value("x"), n.value("img_size")
    anchors, classes = n.whole("anchors"), int(n.number("class_num"))
    threshold, ratio = float(n.number("conf_thresh", default=0.01)), int(n.number("downsample_ratio", default=32))
    stretch, clips = float(n.number("scale_x_y", default=1.0)), n.is_set("clip_bbox", default=True)
    aware, factor = n.is_set("iou_aware"), float(n.number("iou_aware_factor", default=0.5))
    batch, channels, rows, columns = x.shape
    count = len(anchors) // 2
    if channels != count * (5 + classes + aware):
        raise ShapeError(f"{n.label} needs {count * (5 + classes + aware)} channels for {count} anchors, got {x.type}")
    overlap = None
    if aware:
        overlap = n.reshape(n.slice_axis(x, 1, 0, count), (batch, count, 1, rows, columns))
        x = n.slice_axis(x, 1, count, channels)
    view = n.reshape(x, (batch, count, 5 + classes, rows, columns))

    def part(first: int, last: int) -> Value:
        return n.slice_axis(view, 2, first, last)

    score = n.unary("sigmoid", part(4, 5))
    if overlap is not None:
        score = n.elementwise(
            lambda c, o: c.call("pow", 1 - factor) * o.call("sigmoid").call("pow", factor), score, overlap
        )
    height, width = (n.reshape(n.cast(n.slice_axis(size, 1, i, i + 1), x.dtype), (batch, 1, 1, 1, 1)) for i in (0, 1))

    def centre(axis: int, cells: int) -> Value:
        shift = -0.5 * (stretch - 1)
        place = part(axis, axis + 1)
        extent = width if axis == 0 else height

        def locate(v: Sym, e: Sym) -> Sym:
            at = coord(v.builder, 4 - axis).cast(v.dtype)
            return (at + v.call("sigmoid") * stretch + shift) * e / float(cells)

        return n.elementwise(locate, place, extent)

    def half(axis: int, cells: int) -> Value:
        sizes = n.constant(np.asarray(anchors[axis::2], x.dtype.np).reshape(1, count, 1, 1, 1))
        extent = width if axis == 0 else height
        whole = float(ratio * cells)
        return n.elementwise(
            lambda v, a, e: v.call("exp") * a * e * (0.5 / whole), part(2 + axis, 3 + axis), sizes, extent
        )

    columns_, rows_ = int(columns), int(rows)
    centres, halves = (centre(0, columns_), centre(1, rows_)), (half(0, columns_), half(1, rows_))
    edges = []
    for sign in (-1.0, 1.0):
        for c, h, extent in zip(centres, halves, (width, height), strict=True):

            def corner(a: Sym, b: Sym, e: Sym, sign: float = sign) -> Sym:
                at = a + b * sign
                if clips:
                    at = at.call("max", 0) if sign < 0 else at.call("min", e - 1)
                return at

            edges.append(n.elementwise(corner, c, h, extent))

    def kept(v: Value) -> Value:
        return n.elementwise(lambda a, s: where(s < threshold, 0, a), v, score)

    boxes = kept(n.concat(edges, 2))
    scores = kept(n.elementwise(lambda p, s: p.call("sigmoid") * s, part(5, 5 + classes), score))
    flat = (batch, count * rows * columns)
    return {
        "boxes": n.reshape(n.transpose(boxes, (0, 1, 3, 4, 2)), (*flat, 4)),
        "scores": n.reshape(n.transpose(scores, (0, 1, 3, 4, 2)), (*flat, classes)),
    }


@paddle_op("prior_box", operands="input image", outputs="boxes variances")
def prior_box(n: PaddleNode) -> Found:
    """Import prior_box: boxes of given sizes and shapes around each pixel, in fractions of the image."""
    (rows, columns), (height, width) = (tuple(map(int, n.value(name).shape[2:])) for name in ("input", "image"))
    ratios = [1.0]
    for r in n.numbers("aspect_ratios") or ():
        for candidate in (r, 1 / r) if n.is_set("flip") else (r,):
            if all(abs(candidate - seen) >= 1e-6 for seen in ratios):
                ratios.append(candidate)
    least, most = n.numbers("min_sizes") or [], n.numbers("max_sizes") or []
    sizes: list[tuple[float, float]] = []
    for i, low in enumerate(least):
        square = [(math.sqrt(low * most[i]),) * 2] if most else []
        others = [(low * math.sqrt(r), low / math.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
        if n.is_set("min_max_aspect_ratios_order"):
            sizes += [(low, low), *square, *others]
        else:
            sizes += [(low * math.sqrt(r), low / math.sqrt(r)) for r in ratios] + square
    step_w = float(n.number("step_w", default=0.0)) or width / columns
    step_h = float(n.number("step_h", default=0.0)) or height / rows
    offset = float(n.number("offset", default=0.5))
    x, y = (np.arange(columns) + offset) * step_w, (np.arange(rows) + offset) * step_h
    made = np.empty((rows, columns, len(sizes), 4))
    for k, (w, h) in enumerate(sizes):
        made[:, :, k] = np.stack(
            np.broadcast_arrays(x - w / 2, (y - h / 2)[:, None], x + w / 2, (y + h / 2)[:, None]), axis=-1
        ) / (width, height, width, height)
    boxes = np.clip(made, 0, 1) if n.is_set("clip") else made
    variances: Array = np.broadcast_to(n.numbers("variances") or [0.1, 0.1, 0.2, 0.2], made.shape)
    dtype = n.value("input").dtype.np
    return {"boxes": n.constant(boxes.astype(dtype)), "variances": n.constant(np.array(variances, dtype))}


@paddle_op("box_coder", operands="prior_box prior_box_var target_box", outputs="output_box")
def box_coder(n: PaddleNode) -> Value:
    """Import box_coder: moves and sizes of boxes from their priors, or back."""
    prior, spread, target = n.value("prior_box"), n.maybe("prior_box_var"), n.value("target_box")
    extra = 0.0 if n.is_set("box_normalized", default=True) else 1.0
    numbers = n.numbers("variance") or []
    low, high = _corners(n, prior)
    size = n.elementwise(lambda a, b: b - a + extra, low, high)
    centre = n.elementwise(lambda a, s: a + s * 0.5, low, size)
    parts: Sequence[Value | None]
    if spread is not None:
        parts = [n.slice_axis(spread, 1, i, i + 2) for i in (0, 2)]
    elif numbers:
        parts = [n.constant(np.asarray([numbers[i : i + 2]], prior.dtype.np)) for i in (0, 2)]
    else:
        parts = [None, None]
    if n.text("code_type", default="encode_center_size").startswith("encode"):
        return _encoded(n, target, (centre, size), parts, extra)
    axis = int(n.number("axis", default=0))
    rows = [None if v is None or (v.shape[0] == 1 and spread is None) else v for v in parts]
    # The priors belong to axis 1 of the targets, or to axis 0.
    centre, size = (n.unsqueeze(v, [axis]) for v in (centre, size))
    moves, sizes = n.slice_axis(target, 2, 0, 2), n.slice_axis(target, 2, 2, 4)
    factors = [
        v if v is None else n.unsqueeze(v, [axis]) if rows[i] is not None else n.unsqueeze(v, [0])
        for i, v in enumerate(parts)
    ]
    middle = n.elementwise(lambda m, s, c, f: (m * f if f is not None else m) * s + c, moves, size, centre, factors[0])
    extent = n.elementwise(lambda t, s, f: (t * f if f is not None else t).call("exp") * s, sizes, size, factors[1])
    edges = [
        n.elementwise(lambda m, e: m - e * 0.5, middle, extent),
        n.elementwise(lambda m, e: m + e * 0.5 - extra, middle, extent),
    ]
    return n.concat(edges, 2)


def _corners(n: PaddleNode, boxes: Value) -> tuple[Value, Value]:
    return n.slice_axis(boxes, 1, 0, 2), n.slice_axis(boxes, 1, 2, 4)


def _encoded(
    n: PaddleNode, target: Value, prior: tuple[Value, Value], spread: Sequence[Value | None], extra: float
) -> Value:
    """Return [targets, priors, 4]: moves in units of the prior's size, logarithms of sizes in it."""
    low, high = (n.unsqueeze(v, [1]) for v in _corners(n, target))
    centre, size = (n.unsqueeze(v, [0]) for v in prior)
    factors = [None if v is None else n.unsqueeze(v, [0]) for v in spread]
    middle = n.elementwise(lambda a, b: (a + b) * 0.5, low, high)
    moves = n.elementwise(
        lambda m, c, s, f: (m - c) / s / (f if f is not None else 1), middle, centre, size, factors[0]
    )
    ratio = n.elementwise(lambda a, b, s: ((b - a + extra) / s).call("abs").call("log"), low, high, size)
    if factors[1] is not None:
        ratio = n.elementwise(lambda r, f: r / f, ratio, factors[1])
    return n.concat([moves, ratio], 2)


@paddle_op("box_clip", operands="input im_info", outputs="output")
def box_clip(n: PaddleNode) -> Value:
    """Import box_clip: boxes cut to the image's size, which is [height, width, scale]."""
    boxes, info = n.value("input"), n.value("im_info")
    if info.shape[0] != 1:
        raise n.refuse("clips boxes of several images, whose numbers are in a LoD")
    height, width = (
        n.elementwise(
            lambda v, s: (v / s).call("rint") - 1, n.slice_axis(info, 1, i, i + 1), n.slice_axis(info, 1, 2, 3)
        )
        for i in (0, 1)
    )
    limit = n.reshape(n.concat([width, height, width, height], 1), (*(1,) * (len(boxes.shape) - 1), 4))
    return n.elementwise(lambda b, m: b.call("min", m).call("max", 0), boxes, limit)
