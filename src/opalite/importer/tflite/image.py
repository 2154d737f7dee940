"""Importers of resizing."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import DType, Value
from ...ir.symbols import as_float
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
