"""Importers of MediaPipe's custom operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.conv import ConvTranspose
from ...ops.pool import Pool
from ...ops.scatter import ScatterElements
from ..walk.node_context import NodeContext
from .common import SAME, activate, check_rank, pads_for, tflite_op, to_channels_first, to_channels_last, unsupported
from .custom import flex_options, packed_options

_SAME = 1  # of LiteRT's structures, which number paddings from 1


@tflite_op("Convolution2DTransposeBias")
def transpose_conv_bias(ctx: NodeContext) -> Value:
    """Import Convolution2DTransposeBias: a transposed convolution by filters [M,h,w,C], plus a bias."""
    x, w, bias = ctx.input(0), ctx.input(1), ctx.input(2)
    check_rank(ctx, 4, x, w)
    padding, columns, rows = packed_options(ctx, 3)
    strides, kernel = (rows, columns), w.shape[1:3]
    if min(strides) < 1:
        raise ShapeError(f"{ctx.label} has strides {strides}; numbers from 1 on are expected")
    cut = [
        max(0, k - (d - 1) % s - 1) if padding == _SAME else 0
        for k, d, s in zip(kernel, x.shape[1:3], strides, strict=True)
    ]
    begins = [c // 2 for c in cut]
    pads = (*begins, *(c - b for c, b in zip(cut, begins, strict=True)))
    op = ConvTranspose(strides, pads, (1, 1), 1, (0, 0))
    return to_channels_last(ctx, ctx.add(op, [to_channels_first(ctx, x), ctx.transpose(w, (3, 0, 1, 2)), bias]))


@tflite_op("MaxPoolingWithArgmax2D")
def max_pool_with_argmax(ctx: NodeContext) -> list[Value]:
    """Import MaxPoolingWithArgmax2D: the largest element of each window, and its place in the window plus 0.1."""
    x = ctx.input(0)
    check_rank(ctx, 4, x)
    strides, kernel, number, pads = _window(ctx, x.shape[1:3])
    op = Pool(
        strides=strides,
        pads=pads,
        dilations=(1, 1),
        kind="max",
        kernel=kernel,
        ceil_mode=False,
        count_include_pad=False,
        p=2,
        with_indices=True,
        storage_order=0,
    )
    image = to_channels_first(ctx, x)
    values, places = ctx.add_many(op, [image], 2)
    height, width = image.shape[2:]

    def within(place: Sym) -> Sym:
        row = (place.call("mod", height * width) - place.call("mod", width)) / width
        y = row - coord(place.builder, 2) * strides[0] + pads[0]
        x = place.call("mod", width) - coord(place.builder, 3) * strides[1] + pads[1]
        return (y * kernel[1] + x).cast(DType.FLOAT32) + 0.1

    found = ctx.elementwise(within, places)
    return [to_channels_last(ctx, activate(ctx, values, number)), to_channels_last(ctx, found)]


@tflite_op("MaxUnpooling2D")
def max_unpooling(ctx: NodeContext) -> Value:
    """Import MaxUnpooling2D: each element written at its place in its window, zeros elsewhere."""
    x, places = ctx.input(0), ctx.input(1)
    check_rank(ctx, 4, x, places)
    n, height, width, channels = x.shape
    _, _, _, columns, rows = packed_options(ctx, 5)
    out = (height * rows, width * columns)
    strides, kernel, _, pads = _window(ctx, out)
    size = n * out[0] * out[1] * channels

    def flat(place: Sym) -> Sym:
        """Return the position in the output; one past its end for a place outside."""
        at = place.cast(DType.INT64)
        y = (at - at.call("mod", kernel[1])) / kernel[1] + coord(place.builder, 1) * strides[0] - pads[0]
        x = at.call("mod", kernel[1]) + coord(place.builder, 2) * strides[1] - pads[1]
        inside = (y >= 0).call("and", y < out[0]).call("and", x >= 0).call("and", x < out[1])
        whole = ((coord(place.builder, 0) * out[0] + y) * out[1] + x) * channels + coord(place.builder, 3)
        return where(inside, whole, size)

    at = ctx.reshape(ctx.elementwise(flat, places), (x.type.count,))
    empty = ctx.full(0, x.dtype, (size + 1,))
    filled = ctx.add(ScatterElements(axis=0, reduction="none"), [empty, at, ctx.reshape(x, (x.type.count,))])
    return ctx.reshape(ctx.slice_axis(filled, 0, 0, size), (n, *out, channels))


def _window(ctx: NodeContext, sizes: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int], int, tuple[int, ...]]:
    """Return strides, kernel, activation and pads of LiteRT's structure of a pooling."""
    padding, stride_w, stride_h, width, height, number = packed_options(ctx, 6)
    if min(stride_w, stride_h, width, height) < 1:
        raise ShapeError(f"{ctx.label} has a window of {height} by {width} every {stride_h} and {stride_w}")
    strides, kernel = (stride_h, stride_w), (height, width)
    pads = pads_for(SAME, sizes, kernel, strides, (1, 1)) if padding == _SAME else (0, 0, 0, 0)
    return strides, kernel, number, pads


# Landmarks


@tflite_op("TransformLandmarks")
def transform_landmarks(ctx: NodeContext) -> Value:
    """Import TransformLandmarks: x and y of each landmark by two rows of a matrix; version 1 scales its shift."""
    x, options = ctx.input(0), flex_options(ctx)
    dims = int(options.get("dimensions", 3))
    scale = float(options.get("scale", 1.0)) if ctx.version == 1 else 1.0
    if dims not in (2, 3) or not x.shape or x.shape[-1] % dims:
        raise ShapeError(f"{ctx.label} has landmarks of {dims} numbers in {x.type}")
    points = ctx.reshape(x, (x.type.count // dims, dims))
    px, py, *rest = ctx.split_axis(points, 1, (1,) * dims)
    rows = _rows(ctx, ctx.input(1))
    moved = [
        ctx.elementwise(lambda a, b, p, q, s: a * p + b * q + s * scale, px, py, row[0], row[1], row[3]) for row in rows
    ]
    return ctx.reshape(ctx.concat([*moved, *rest], 1), x.shape)


def _rows(ctx: NodeContext, matrix: Value) -> list[list[Value]]:
    """Return the numbers of the first two rows of a matrix of 4 by 4."""
    if matrix.type.count != 16:
        raise ShapeError(f"{ctx.label} needs a matrix of 4 by 4, got {matrix.type}")
    numbers = ctx.split_axis(ctx.reshape(matrix, (16,)), 0, (1,) * 16)
    return [[ctx.reshape(v, ()) for v in numbers[4 * r : 4 * r + 4]] for r in (0, 1)]


@tflite_op("TransformTensorBilinear")
def transform_tensor(ctx: NodeContext) -> Value:
    """Import TransformTensorBilinear: an image read at positions that a matrix gives, zero outside of it."""
    x, options = ctx.input(0), flex_options(ctx)
    check_rank(ctx, 4, x)
    height, width = int(options.get("output_height", 0)), int(options.get("output_width", 0))
    if height < 1 or width < 1:
        raise unsupported(ctx, f"has no size of its output among its options {sorted(options)}")
    shift = 0.5 if ctx.version > 1 else 0.0
    n, rows, columns, channels = x.shape

    def position(p: Sym, q: Sym, s: Sym) -> Sym:
        across = coord(p.builder, 1).cast(DType.FLOAT32) + shift
        down = coord(p.builder, 0).cast(DType.FLOAT32) + shift
        return p * across + q * down + s - shift

    at = [ctx.elementwise(position, r[0], r[1], r[3], shape=(height, width)) for r in _rows(ctx, ctx.input(1))]
    flat = ctx.reshape(x, (n, rows * columns, channels))

    def corner(right: int, below: int) -> Value:
        def place(px: Sym, py: Sym) -> Sym:
            cx = (px.call("floor") + right).call("max", 0).call("min", columns - 1)
            cy = (py.call("floor") + below).call("max", 0).call("min", rows - 1)
            return (cy * columns + cx).cast(DType.INT64)

        return ctx.gather(flat, ctx.elementwise(place, *at), 1)

    def mixed(px: Sym, py: Sym, a: Sym, b: Sym, c: Sym, d: Sym) -> Sym:
        right, below = px - px.call("floor"), py - py.call("floor")
        upper, lower = a * (1.0 - right) + b * right, c * (1.0 - right) + d * right
        inside = (px >= 0).call("and", px <= columns - 1).call("and", py >= 0).call("and", py <= rows - 1)
        return where(inside, upper * (1.0 - below) + lower * below, 0)

    spread = [ctx.reshape(v, (height, width, 1)) for v in at]
    return ctx.elementwise(mixed, *spread, corner(0, 0), corner(1, 0), corner(0, 1), corner(1, 1))


@tflite_op("Landmarks2TransformMatrix")
def landmarks_to_matrix(ctx: NodeContext) -> Value:
    """Import Landmarks2TransformMatrix, version 2: the matrix that maps pixels of a crop to the picture."""
    if ctx.version < 2:
        raise unsupported(ctx, "is of the first form; convert the model anew")
    o = flex_options(ctx)
    chosen = [int(i) for i in _flat(o.get("subset_idxs", ()))]
    height, width = float(o.get("output_height", 0)), float(o.get("output_width", 0))
    points = ctx.reshape(ctx.input(0), (ctx.input(0).type.count // 3, 3))
    ends = [int(o.get(f"{side}_rotation_idx", -1)) for side in ("left", "right")]
    if not chosen or min(*chosen, *ends) < 0 or max(*chosen, *ends) >= points.shape[0] or min(height, width) <= 0:
        raise ShapeError(f"{ctx.label} (version {ctx.version}) has options {o} for {points.shape[0]} landmarks")
    (lx, ly), (rx, ry) = (_point(ctx, points, i) for i in ends)
    target = float(o.get("target_rotation_radians", 0.0))
    angle = ctx.elementwise(lambda a, b, c, d: target - (d - b).call("atan2", c - a), lx, ly, rx, ry)
    xs, ys = (
        ctx.reshape(ctx.slice_axis(ctx.take(points, np.asarray(chosen), 0), 1, k, k + 1), (len(chosen),))
        for k in (0, 1)
    )
    turned = (
        ctx.elementwise(lambda x, y, r: x * r.call("cos") - y * r.call("sin"), xs, ys, angle),
        ctx.elementwise(lambda x, y, r: x * r.call("sin") + y * r.call("cos"), xs, ys, angle),
    )
    (right, bottom), (left, top) = (
        [ctx.reduce(v, kind, (0,), keepdims=False) for v in turned] for kind in ("max", "min")
    )
    sx, sy = float(o.get("scale_x", 1.0)) / width, float(o.get("scale_y", 1.0)) / height

    def entry(row: int, column: int) -> Value:
        """Return an element of shift * turn back * scale * shift of the crop's centre."""

        def element(r: Sym, a: Sym, b: Sym, c: Sym, d: Sym) -> Sym:
            x, y, cos, sin = (a + b) * 0.5, (c + d) * 0.5, r.call("cos"), r.call("sin")
            across, down = (b - a) * sx, (d - c) * sy
            first = (cos * across, sin * down) if row == 0 else (-sin * across, cos * down)
            if column < 2:
                return first[column]
            centre = x * cos + y * sin if row == 0 else y * cos - x * sin
            return centre - first[0] * (width / 2) - first[1] * (height / 2)

        return ctx.reshape(ctx.elementwise(element, angle, left, right, top, bottom), (1,))

    zero, one = (ctx.constant(np.full(1, v, np.float32)) for v in (0, 1))
    rows = [[entry(r, 0), entry(r, 1), zero, entry(r, 3)] for r in (0, 1)]
    last = [zero, zero, one, zero, zero, zero, zero, one]
    return ctx.reshape(ctx.concat([*rows[0], *rows[1], *last], 0), (1, 4, 4))


def _point(ctx: NodeContext, points: Value, i: int) -> list[Value]:
    row = ctx.slice_axis(points, 0, i, i + 1)
    return [ctx.reshape(ctx.slice_axis(row, 1, k, k + 1), ()) for k in (0, 1)]


def _flat(values: Any) -> list[Any]:
    return [w for v in values for w in (_flat(v) if isinstance(v, (list, tuple)) else [v])]
