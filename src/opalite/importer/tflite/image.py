"""Importers of resizing."""

from __future__ import annotations

from operator import lt

import numpy as np

from ...errors import ShapeError
from ...ir import Array, DType, Value
from ...ir.symbols import as_float, is_symbolic
from ...ops.resize import Resize
from ..walk.node_context import NodeContext
from .common import check_rank, tflite_op, to_channels_first, to_channels_last


@tflite_op("RESIZE_BILINEAR")
@tflite_op("RESIZE_NEAREST_NEIGHBOR", moves=True)
def resize(ctx: NodeContext) -> Value:
    """Import RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of x[N,H,W,C] to the size in input 1."""
    x, size = ctx.input(0), ctx.const_ints(1)
    check_rank(ctx, 4, x)
    if len(size) != 2:
        raise ShapeError(f"{ctx.label} resizes {x.type} to {size}; a height and a width are expected")
    linear = ctx.op_type == "RESIZE_BILINEAR"
    corners, centres = bool(ctx.attr("align_corners", False)), bool(ctx.attr("half_pixel_centers", False))
    if not linear and not is_symbolic((*x.shape[1:3], *size)) and any(map(lt, size, x.shape[1:3])):
        # Places on a border between two elements: the reciprocal of a scale, which Resize has, would miss them.
        for axis, out in enumerate(size, 1):
            x = ctx.take(x, _nearest(int(out), int(x.shape[axis]), corners, centres), axis)
        return x
    half = "half_pixel" if linear else "tf_half_pixel_for_nn"
    work = x.dtype if not linear or x.dtype.is_float else DType.FLOAT32
    image = to_channels_first(ctx, ctx.cast(x, work))
    op = Resize(
        sizes=(*image.shape[:2], *size),
        scales=(1.0, 1.0, *(as_float(s / d) for s, d in zip(size, image.shape[2:], strict=True))),
        mode="linear" if linear else "nearest",
        coordinate="align_corners" if corners else half if centres else "asymmetric",
        nearest_mode="round_prefer_ceil" if corners else "floor",
        cubic_a=-0.75,
        exclude_outside=False,
        antialias=False,
        roi=None,
        extrapolation=0.0,
    )
    same = tuple(size) == image.shape[2:]
    return ctx.cast(to_channels_last(ctx, image if same else ctx.add(op, [image])), x.dtype)


def _nearest(out: int, size: int, corners: bool, centres: bool) -> Array:
    """Return the element nearest to each result of an axis, in float32 as LiteRT has it."""
    ends = (size - 1, out - 1) if corners and out > 1 else (size, out)
    places = np.arange(out, dtype=np.float32) + np.float32(0.5 if centres else 0)
    at = places * (np.float32(ends[0]) / np.float32(ends[1]))
    whole = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return np.asarray(np.clip(whole, 0, size - 1), np.int64)
