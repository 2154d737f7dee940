"""Image operators of domain com.microsoft: crops."""

from __future__ import annotations

import math

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ..walk.node_context import NodeContext, onnx_op
from .unfuse import MS


@onnx_op("CropAndResize", domain=MS)
def crop_and_resize(ctx: NodeContext) -> Value:
    """Import CropAndResize: regions of images x[N,C,H,W], each resized to one size.

    Regions are (y1, x1, y2, x2) from 0 to 1 between the centres of the outer pixels; points outside the image get
    `extrapolation_value`.
    """
    x, rois, batch = ctx.input(0), ctx.input(1), ctx.input(2)
    size, mode = ctx.const_ints(3), ctx.choice("mode", "bilinear", ("bilinear", "nearest"))
    beyond = ctx.attr("extrapolation_value", 0.0)
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or len(size) != 2 or min(size) < 1:
        raise ShapeError(f"{ctx.label} needs x[N,C,H,W], rois[R,4] and two sizes, got {x.type}, {rois.type} and {size}")
    (n, c, height, width), regions, (rows, columns) = x.shape, rois.shape[0], size

    def positions(axis: int, count: int, pixels: int) -> Value:
        """Return positions in pixels along one axis: [R, count] placed at `axis` of [R, y, x]."""
        start, stop = (ctx.reshape(ctx.slice_axis(rois, 1, i, i + 1), (regions, 1, 1)) for i in (axis - 1, axis + 1))

        def locate(a: Sym, b: Sym) -> Sym:
            if count == 1:
                return (a + b) * (0.5 * (pixels - 1))
            step = (b - a) * (pixels - 1) / (count - 1)
            i = coord(a.builder, axis)
            inner = a * (pixels - 1) + i.cast(a.dtype) * step
            return where(i.eq(count - 1), b * (pixels - 1), inner)  # exact at the end, whatever the rounding

        return ctx.elementwise(locate, start, stop, shape=(regions, *((count, 1) if axis == 1 else (1, count))))

    y, z = positions(1, rows, height), positions(2, columns, width)
    shape = (regions, rows, columns)
    flat = ctx.reshape(ctx.transpose(x, (0, 2, 3, 1)), (n * height * width, c))
    image = ctx.reshape(ctx.cast(batch, DType.INT64), (regions, 1, 1))

    def read(down: int, right: int) -> Value:
        def index(b: Sym, v: Sym, h: Sym) -> Sym:
            return (b * height + _pixel(v, height, down, mode)) * width + _pixel(h, width, right, mode)

        at = ctx.reshape(ctx.elementwise(index, image, y, z, shape=shape), (math.prod(shape),))
        return ctx.reshape(ctx.gather(flat, at, 0), (*shape, c))

    corners = [(0, 0), (0, 1), (1, 0), (1, 1)] if mode == "bilinear" else [(0, 0)]
    samples = [read(*corner) for corner in corners]

    def join(v: Sym, h: Sym, *s: Sym) -> Sym:
        part, across = v - v.call("floor"), h - h.call("floor")
        found = s[0]
        if len(s) > 1:
            top, bottom = s[0] + (s[1] - s[0]) * across, s[2] + (s[3] - s[2]) * across
            found = top + (bottom - top) * part
        outside = (v < 0.0).call("or", v > height - 1.0).call("or", h < 0.0).call("or", h > width - 1.0)
        return where(outside, beyond, found)

    places = [ctx.reshape(p, (*p.shape, 1)) for p in (y, z)]
    return ctx.transpose(ctx.elementwise(join, *places, *samples), (0, 3, 1, 2))


def _pixel(v: Sym, size: int, far: int, mode: str) -> Sym:
    """Return the pixel before or after a position, or the nearest one, clamped to the image."""
    inside = v.call("max", 0.0).call("min", size - 1.0)
    if mode == "nearest":
        return (inside + 0.5).call("floor").cast(DType.INT64)  # rounds halves up, like C
    return inside.call("ceil" if far else "floor").cast(DType.INT64)
