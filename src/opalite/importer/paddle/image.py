"""Importers of images: resizing, sampling, rearranging pixels and channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...ir import Value
from ...ir.symbols import as_float, int_or_symbolic
from ...ops.conv import Conv
from ...ops.resize import Resize
from ..onnx.image import scaled_size, size_ratio
from .common import PaddleNode, paddle_op

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
_INTERP = tuple(f"{mode}_interp{version}" for mode in _MODES for version in ("", "_v2"))


@paddle_op(*_INTERP, operands="x out_size size_tensor scale_tensor")
def interpolate(n: PaddleNode) -> Value:
    """Import interpolation to a size, or by a scale; a scale also says how positions correspond."""
    x = n.first(n.value("x"))
    rank = len(x.shape) - 2
    sizes, scales = _target(n, x.shape[2:])
    corners = n.is_set("align_corners", default=True)
    mode = _MODES[n.op_type.partition("_")[0]]
    half = mode == "cubic" or (mode == "linear" and n.number("align_mode", default=1) == 0)
    coordinate = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    op = Resize(
        sizes=tuple(int_or_symbolic(d) for d in (*x.shape[:2], *sizes)),
        scales=tuple(map(as_float, (1.0, 1.0, *scales))),
        mode=mode,
        coordinate=coordinate,
        # Halves are rounded up between aligned corners.
        nearest_mode="round_prefer_ceil" if corners else "floor",
        cubic_a=-0.75,
        exclude_outside=False,
        extrapolation=0.0,
        roi=None,
        antialias=False,
    )
    if len(sizes) != rank:
        raise ShapeError(f"{n.label} has {len(sizes)} sizes for the {rank} spatial axes of {x.type}")
    return n.back(x if op.sizes == x.shape else n.add(op, [x]))


def _target(n: PaddleNode, spatial: Sequence[int]) -> tuple[list[int], list[float]]:
    """Return the output's spatial sizes and scales."""
    rank = len(spatial)
    sizes = n.whole("size_tensor", default=())
    scales = [] if sizes else [s for s in n.numbers("scale_tensor", "scale") or [] if s > 0]
    scales = scales * rank if len(scales) == 1 else scales
    if not sizes:
        sizes = n.whole("out_size", default=())
    if not sizes and len(scales) == rank:
        return [scaled_size(d, s) for d, s in zip(spatial, scales, strict=True)], scales
    if not sizes:
        sizes = [int(n.number(name)) for name in ("out_d", "out_h", "out_w")[3 - rank :]]
    if len(scales) != rank:
        scales = [size_ratio(s, d) for s, d in zip(sizes, spatial, strict=True)]
    return sizes, scales


@paddle_op("grid_sample", "grid_sampler", operands="x grid")
def grid_sample(n: PaddleNode) -> Value:
    """Import grid_sample: x at positions in [-1, 1]."""
    mode = {"bilinear": "linear", "nearest": "nearest"}.get(n.text("mode", default="bilinear"))
    if mode is None:
        raise n.refuse(f"samples by '{n.text('mode')}'; bilinear and nearest are known")
    return n.emit(
        "GridSample",
        [n.value("x"), n.value("grid")],
        mode=mode,
        padding_mode=n.text("padding_mode", default="zeros"),
        align_corners=int(n.is_set("align_corners", default=True)),
    )


@paddle_op("affine_grid", operands="input output_shape")
def affine_grid(n: PaddleNode) -> Value:
    """Import affine_grid: positions of all pixels, moved by a matrix."""
    sizes = n.shape_tensor(n.whole("output_shape", "OutputShape"))
    corners = int(n.is_set("align_corners", default=True))
    return n.emit("AffineGrid", [n.value("theta", "input"), sizes], align_corners=corners)


@paddle_op("pixel_shuffle")
def pixel_shuffle(n: PaddleNode) -> Value:
    """Import pixel_shuffle: blocks of channels become blocks of pixels."""
    factor = int(n.number("upscale_factor", default=1))
    return n.back(n.emit("DepthToSpace", [n.first(n.value("x"))], blocksize=factor, mode="CRD"))


@paddle_op("pixel_unshuffle")
def pixel_unshuffle(n: PaddleNode) -> Value:
    """Import pixel_unshuffle: blocks of pixels become blocks of channels."""
    factor = int(n.number("downscale_factor", default=1))
    return n.back(n.emit("SpaceToDepth", [n.first(n.value("x"))], blocksize=factor, mode="CRD"))


@paddle_op("channel_shuffle", "shuffle_channel")
def channel_shuffle(n: PaddleNode) -> Value:
    """Import channel_shuffle: channels of all groups by turns."""
    x, groups = n.first(n.value("x")), int(n.number("groups", "group", default=1))
    batch, channels, *rest = x.shape
    if groups < 1 or channels % groups:
        raise ShapeError(f"{n.label} divides the channels of {x.type} into {groups} groups")
    view = n.reshape(x, (batch, groups, channels // groups, *rest))
    return n.back(n.reshape(n.swap_axes(view, 1, 2), x.shape))


@paddle_op("temporal_shift")
def temporal_shift(n: PaddleNode) -> Value:
    """Import temporal_shift: some channels come from the frame before, some from the one after."""
    x = n.first(n.value("x"))
    frames, ratio = int(n.number("seg_num")), float(n.number("shift_ratio", default=0.25))
    total, channels, height, width = x.shape
    first, second = int(channels * ratio), int(channels * 2 * ratio)
    view = n.reshape(x, (total // frames, frames, channels, height, width))
    before = n.slice_axis(n.slice_axis(view, 2, 0, first), 1, 0, frames - 1)
    after = n.slice_axis(n.slice_axis(view, 2, first, second), 1, 1, frames)
    parts = [
        n.pad_zeros(before, (0, 1, 0, 0, 0, 0, 0, 0, 0, 0)),
        n.pad_zeros(after, (0, 0, 0, 0, 0, 0, 1, 0, 0, 0)),
        n.slice_axis(view, 2, second, channels),
    ]
    return n.back(n.reshape(n.concat(parts, 2), x.shape))


@paddle_op("unfold")
def unfold(n: PaddleNode) -> Value:
    """Import unfold: the pixels of each window as a column, by a convolution that picks each of them."""
    x = n.value("x")
    kernel, strides = n.whole("kernel_sizes"), n.whole("strides", default=(1, 1))
    pads, dilations = n.whole("paddings", default=(0, 0)), n.whole("dilations", default=(1, 1))
    pads = pads * 2 if len(pads) == 2 else pads
    channels, taps = x.shape[1], math.prod(kernel)
    one_tap = np.tile(np.eye(taps, dtype=x.dtype.np).reshape(taps, 1, *kernel), (int(channels), 1, 1, 1))
    op = Conv(tuple(strides), tuple(pads), tuple(dilations), channels)
    out = n.add(op, [x, n.constant(one_tap), None])
    return n.reshape(out, (*out.shape[:2], math.prod(out.shape[2:])))


@paddle_op("fold")
def fold(n: PaddleNode) -> Value:
    """Import fold: the sum of overlapping windows."""
    pads = n.whole("paddings", default=(0, 0))
    inputs = [n.value("x"), *(n.shape_tensor(n.whole(name)) for name in ("output_sizes", "kernel_sizes"))]
    return n.emit(
        "Col2Im",
        inputs,
        strides=tuple(n.whole("strides", default=(1, 1))),
        pads=tuple(pads * 2 if len(pads) == 2 else pads),
        dilations=tuple(n.whole("dilations", default=(1, 1))),
    )
