"""Images: resizing, grid sampling and region pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...ir import DType, Value
from ...ir.symbols import as_float, as_float32, int_or_symbolic, is_less, is_symbolic
from ...ops.grid_sample import GridSample
from ...ops.operator import normalize_axis
from ...ops.resize import Resize
from ...ops.resize_weights import NEAREST_UNSPECIFIED
from ...ops.roi import RoiAlign, RoiPool
from ..walk.node_context import NodeContext, onnx_op

EXACT = 1 << 24
"""float32 represents every integer up to this one."""

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


@onnx_op("Upsample")
@onnx_op("Resize", since=10)
def resize_asymmetric(ctx: NodeContext) -> Value:
    """Import Upsample and the first Resize by scales: an input since opset 9; positions are output / scale."""
    scales: Sequence[float] = ctx.const_numbers(1) if ctx.version >= 9 else ctx.attr("scales", ())
    if ctx.version < 7:
        scales = (1.0, 1.0, ctx.attr("height_scale", 1.0), ctx.attr("width_scale", 1.0))
    x = ctx.input(0)
    scales = _for_axes(ctx, scales, range(len(x.shape)))
    sizes = [scaled_size(d, s) for d, s in zip(x.shape, scales, strict=True)]
    return emit_resize(ctx, sizes, scales, coordinate="asymmetric", nearest_mode=NEAREST_UNSPECIFIED)


@onnx_op("Resize", since=11)
def resize(ctx: NodeContext) -> Value:
    """Import Resize: every axis by scale or to a size, with all modes; `axes` (since 18) selects axes."""
    x = ctx.input(0)
    rank = len(x.shape)
    axes = [normalize_axis(a, rank) for a in ctx.ints("axes", range(rank))]
    coordinate = ctx.attr("coordinate_transformation_mode", "half_pixel")
    roi: list[float] | None = None
    if coordinate == "tf_crop_and_resize":
        given = [float(r) for r in ctx.const(1).reshape(-1)]
        if len(given) != 2 * len(axes):
            raise ShapeError(f"{ctx.label} has {len(given)} numbers in roi for {len(axes)} axes")
        roi = [0.0] * rank + [1.0] * rank
        for i, a in enumerate(axes):
            roi[a], roi[rank + a] = given[i], given[len(axes) + i]
    scales = [1.0] * rank
    sizes = list(x.shape)
    if ctx.get(2) is not None and ctx.input(2).type.count:
        given = ctx.const_numbers(2)
        for a, s in zip(axes, _for_axes(ctx, given, axes), strict=True):
            scales[a] = s
            sizes[a] = scaled_size(x.shape[a], s)
    else:
        wanted = _for_axes(ctx, ctx.const_ints(3), axes)
        ratios = [size_ratio(s, x.shape[a]) for a, s in zip(axes, wanted, strict=True)]
        policy = ctx.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [_min_or_max(ratios, smallest=policy == "not_larger")] * len(axes)
            wanted = [math.floor(r * x.shape[a] + 0.5) for a, r in zip(axes, ratios, strict=True)]
        for a, s, r in zip(axes, wanted, ratios, strict=True):
            sizes[a], scales[a] = s, r
    return emit_resize(ctx, sizes, scales, coordinate, ctx.attr("nearest_mode", "round_prefer_floor"), roi)


def scaled_size(size: int, scale: float) -> int:
    """Return floor(size * scale) in float32, as onnx's shape inference does, with or without a region of interest."""
    if not is_symbolic((size, scale)):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    if not is_symbolic(scale):  # a product that float32 represents is exact
        times, parts = float(np.float32(scale)).as_integer_ratio()
        if size * times <= EXACT:
            return size * times // parts
    product: Any = as_float32(size) * as_float32(scale)
    found: int = math.floor(as_float32(product))
    return found


def size_ratio(size: int, of: int) -> float:
    """Return size / of, or 1 for an empty axis; a plain number if one is a fixed multiple of the other."""
    if is_symbolic((size, of)):
        rest = size % of
        if not is_symbolic(rest) and rest == 0 and not is_symbolic(size // of):
            return float(size // of)
    return size / of if of else 1.0


def _min_or_max(ratios: Sequence[float], smallest: bool) -> float:
    """Return min or max of the ratios; a guard records the result if they depend on sizes."""
    best = ratios[0]
    for r in ratios[1:]:
        if is_less(r, best) if smallest else is_less(best, r):
            best = r
    return best


def _for_axes(ctx: NodeContext, numbers: Sequence[Any], axes: Sequence[int]) -> Sequence[Any]:
    if len(numbers) != len(axes):
        raise ShapeError(f"{ctx.label} has {len(numbers)} scales or sizes for {len(axes)} axes")
    return numbers


def emit_resize(
    ctx: NodeContext,
    sizes: Sequence[int],
    scales: Sequence[float],
    coordinate: str,
    nearest_mode: str,
    roi: Sequence[float] | None = None,
) -> Value:
    """Emit the Resize of input 0 to `sizes`, by the node's other attributes."""
    x = ctx.input(0)
    mode = _MODES[ctx.choice("mode", "nearest", _MODES)]
    if coordinate not in _COORDINATES:
        raise UnsupportedOpError(f"{ctx.label} has coordinate_transformation_mode '{coordinate}', which is unknown")
    # A scale that changes no size is the identity in other runtimes too.
    if tuple(sizes) == x.shape and roi is None:
        return x
    antialias = ctx.attr("antialias", False)
    if antialias:  # antialiasing filters only axes that change
        scales = [1.0 if n == d else s for n, d, s in zip(sizes, x.shape, scales, strict=True)]
    # Interpolated integers and float16 are computed in float32 and truncated, as other runtimes do.
    through = x.dtype if mode == "nearest" or x.dtype.is_float else DType.FLOAT32
    out = ctx.add(
        Resize(
            sizes=tuple(int_or_symbolic(s) for s in sizes),
            scales=tuple(map(as_float, scales)),
            mode=mode,
            coordinate=coordinate,
            nearest_mode=nearest_mode,
            cubic_a=ctx.attr("cubic_coeff_a", -0.75),
            exclude_outside=ctx.attr("exclude_outside", False),
            extrapolation=ctx.attr("extrapolation_value", 0.0),
            roi=None if roi is None else tuple(roi),
            antialias=antialias,
        ),
        [ctx.cast(x, through)],
    )
    return ctx.cast(out, x.dtype)


@onnx_op("GridSample", since=16)
def grid_sample(ctx: NodeContext) -> Value:
    """Import GridSample: x at the positions of a grid in [-1, 1]."""
    padding = ctx.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    mode = _MODES[ctx.choice("mode", "linear", _MODES)]
    return ctx.add(GridSample(mode, padding, ctx.attr("align_corners", False)), [ctx.input(0), ctx.input(1)])


@onnx_op("AffineGrid", since=20)
def affine_grid(ctx: NodeContext) -> Value:
    """Import AffineGrid: positions of all pixels in homogeneous coordinates, times each matrix theta[n]."""
    theta, (n, _, *sizes) = ctx.input(0), ctx.const_ints(1)
    rank = len(sizes)
    if theta.shape != (n, rank, rank + 1):
        raise ShapeError(f"{ctx.label} needs theta[{n},{rank},{rank + 1}] for size {tuple(sizes)}, got {theta.type}")
    corners = ctx.attr("align_corners", False)
    lines = [np.linspace(-1, 1, d) if corners and d > 1 else (2 * np.arange(d) + 1) / d - 1 for d in sizes]
    grid = np.meshgrid(*lines, indexing="ij")[::-1]
    points = np.stack([*grid, np.ones(sizes)], axis=-1).reshape(-1, rank + 1)
    out = ctx.matmul(ctx.constant(points.astype(theta.dtype.np)), theta, trans_b=True)
    return ctx.reshape(out, (n, *sizes, rank))


@onnx_op("RoiAlign", since=10)
def roi_align(ctx: NodeContext) -> Value:
    """Import RoiAlign: mean (or maximum) of bilinear samples in each bin of each region."""
    default = "half_pixel" if ctx.version >= 16 else "output_half_pixel"
    coordinates = ctx.choice("coordinate_transformation_mode", default, ("half_pixel", "output_half_pixel"))
    mode = ctx.choice("mode", "avg", ("avg", "max"))
    op = RoiAlign(
        rows=ctx.attr("output_height", 1),
        columns=ctx.attr("output_width", 1),
        ratio=max(0, ctx.attr("sampling_ratio", 0)),
        scale=ctx.attr("spatial_scale", 1.0),
        half_pixel=coordinates == "half_pixel",
        maximum=mode == "max",
    )
    return ctx.add(op, [ctx.input(0), ctx.input(1), ctx.input(2)])


@onnx_op("MaxRoiPool", since=1)
def max_roi_pool(ctx: NodeContext) -> Value:
    """Import MaxRoiPool: largest element of each bin of each region."""
    shape = ctx.ints("pooled_shape", ())
    if len(shape) != 2:
        raise ShapeError(f"{ctx.label} has pooled_shape {shape}; expected rows and columns")
    op = RoiPool(rows=shape[0], columns=shape[1], scale=ctx.attr("spatial_scale", 1.0))
    return ctx.add(op, [ctx.input(0), ctx.input(1)])


# Of the first opsets: ONNX removed these operators, but old converted files contain them.


@onnx_op("ImageScaler", since=1)
def image_scaler(ctx: NodeContext) -> Value:
    """Import ImageScaler: scale * x[N,C,H,W] + bias[C]."""
    x, factor = ctx.input(0), ctx.attr("scale", 1.0)
    bias = np.asarray(ctx.attr("bias", ()), x.dtype.np)
    if len(x.shape) != 4 or bias.shape != (x.shape[1],):
        raise ShapeError(f"{ctx.label} has {bias.size} biases for the channels of {x.type}")
    return ctx.elementwise(lambda v, b: v * factor + b, x, ctx.constant(bias.reshape(-1, 1, 1)))


@onnx_op("Crop", since=1)
def crop(ctx: NodeContext) -> Value:
    """Import Crop: x[N,C,H,W] without `border` (left, top, right, bottom), or `scale` pixels from the top left."""
    x, size = ctx.input(0), ctx.ints("scale", ())
    left, top, right, bottom = ctx.ints("border", (0, 0, 0, 0))
    height, width = size or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    if min(left, top, height, width) < 0 or top + height > x.shape[2] or left + width > x.shape[3]:
        raise ShapeError(f"{ctx.label} crops {height} by {width} from ({top}, {left}) of {x.type}")
    return ctx.slice_axis(ctx.slice_axis(x, 2, top, top + height), 3, left, left + width)
