"""Resampling and rearranging of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation

COORDINATES = (
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 0.6, 1.37)


@operation("window", 1.5)
def resize(b: Builder) -> None:
    d = b.draw
    if b.opset < 10:
        upsample(b)
        return
    x = b.calm(d.pick([2, 3, 4, 4, 4, 5]), lambda a: 0 < a.size <= 3000)
    shape = b[x].shape
    axes = list(range(len(shape)))
    moved = set(axes[-2:] if len(shape) > 2 and d.chance(0.8) else d.subset(axes, least=1))
    scales = [float(d.pick(SCALES)) if i in moved else 1.0 for i in axes]
    if b.opset == 10:
        b.emit("Resize", [x, b.const(np.asarray(scales, "f4"))], mode=d.pick(["nearest", "linear"]))
        return
    mode = d.pick(["nearest", "linear", "linear", "cubic"])
    known = 4 if b.opset < 19 else 5
    coordinates = d.pick(COORDINATES if d.chance(0.15) else COORDINATES[:known])
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attrs["nearest_mode"] = d.pick(NEAREST)
    if mode == "cubic":
        attrs |= {"cubic_coeff_a": d.pick([None, -0.5]), "exclude_outside": d.pick([None, 0, 1])}
    if mode == "linear" and b.opset >= 18 and d.chance(0.3):
        attrs["antialias"] = 1
    roi = b.const(np.zeros(0, "f4"), 0.0) if b.opset < 13 else ""
    if coordinates == "tf_crop_and_resize":
        # onnxruntime does not crop axes whose size stays
        cut = np.asarray([i in moved and max(1, round(shape[i] * scales[i])) != shape[i] for i in axes], "f4")
        starts, ends = cut * d.array([len(shape)], "f4", 0, 0.4), 1 - cut * d.array([len(shape)], "f4", 0, 0.4)
        roi = b.const(np.concatenate([starts, ends]), 0.0)
        attrs["extrapolation_value"] = d.pick([None, 1.5])
    sizes = [max(1, round(n * s)) if i in moved else n for i, (n, s) in enumerate(zip(shape, scales, strict=True))]
    if coordinates == "tf_crop_and_resize" and (sizes == list(shape) or len(shape) != 4 or min(moved) < 2):
        raise Rejected("onnxruntime ignores the region where no size changes, and outside of pictures")
    if b.opset >= 18 and d.chance(0.3):
        attrs["axes"] = named = sorted(moved)
        if d.chance(0.4):
            attrs["keep_aspect_ratio_policy"] = d.pick(["stretch", "not_larger", "not_smaller"])
        scales, sizes = [scales[i] for i in named], [sizes[i] for i in named]
        if coordinates == "tf_crop_and_resize":
            raise Rejected("a region of some axes")
    # By scales onnxruntime ignores the region when it computes the output's size, against the definition.
    if d.chance(0.5) and coordinates != "tf_crop_and_resize":
        attrs.pop("keep_aspect_ratio_policy", None)
        b.emit("Resize", [x, roi, b.const(np.asarray(scales, "f4"))], **attrs)
    else:
        b.emit("Resize", [x, roi, b.const(np.zeros(0, "f4"), 0.0) if b.opset < 13 else "", b.ints(sizes)], **attrs)


def upsample(b: Builder) -> None:
    d = b.draw
    x = b.real(4, lambda a: 0 < a.size <= 2000)
    scales = [1.0, 1.0, d.pick([1.0, 2.0, 3.0, 1.5]), d.pick([1.0, 2.0, 1.3])]
    mode = d.pick(["nearest", "linear"])
    if b.opset < 9:
        b.emit("Upsample", [x], scales=scales, mode=mode)
    else:
        b.emit("Upsample", [x, b.const(np.asarray(scales, "f4"))], mode=mode)


@operation("window", 0.5)
def grid_sample(b: Builder) -> None:
    if not b.has("GridSample"):
        raise Rejected("GridSample")
    d = b.draw
    x = b.real(4, lambda a: 0 < a.size <= 3000)
    n = b[x].shape[0]
    grid = b.operand([n, d.between(1, 7), d.between(1, 7), 2], b.dtype, -1.3, 1.3)
    modes = ["bilinear", "nearest", "bicubic"] if b.opset < 20 else ["linear", "nearest", "cubic"]
    padding = d.pick(["zeros", "border", "reflection"])
    b.emit("GridSample", [x, grid], mode=d.pick(modes), padding_mode=padding, align_corners=d.between(0, 1))


@operation("window", 0.5)
def blocks(b: Builder) -> None:
    """DepthToSpace and SpaceToDepth."""
    d, size = b.draw, b.draw.pick([2, 2, 3])
    if d.chance(0.5):
        x = b.real(4, lambda a: a.shape[1] % (size * size) == 0)
        b.emit("DepthToSpace", [x], blocksize=size, mode=d.pick([None, "DCR", "CRD"]) if b.opset >= 11 else None)
    else:
        x = b.real(4, lambda a: a.shape[2] % size == 0 and a.shape[3] % size == 0)
        b.emit("SpaceToDepth", [x], blocksize=size)


@operation("window", 0.2)
def roi_align(b: Builder) -> None:
    if not b.has("RoiAlign"):
        raise Rejected("RoiAlign")
    d = b.draw
    x = b.calm(4, lambda a: 0 < a.size <= 3000)
    n, _, h, w = b[x].shape
    count = d.between(1, 4)
    corner, extent = d.array([count, 2], b.dtype, 0, max(h, w)), d.array([count, 2], b.dtype, 1, max(h, w))
    rois = b.const(np.concatenate([corner, corner + extent], 1), 0.0)
    batch = b.const(d.array([count], "i8", 0, n - 1), 0.0)
    mode = d.pick(["half_pixel", "output_half_pixel"]) if b.opset >= 16 else None
    b.emit(
        "RoiAlign",
        [x, rois, batch],
        output_height=d.between(1, 4),
        output_width=d.between(1, 4),
        sampling_ratio=d.pick([None, 0, 1, 2, 3]),
        spatial_scale=d.pick([None, 0.5]),
        coordinate_transformation_mode=mode,
        mode=d.pick([None, "avg", "max"]),
    )


@operation("window", 0.2)
def center_crop_pad(b: Builder) -> None:
    if not b.has("CenterCropPad"):
        raise Rejected("CenterCropPad")
    d, x = b.draw, b.real(where=lambda a: a.ndim > 0)
    axes = d.subset(range(b[x].ndim), least=1)
    sizes = [max(1, b[x].shape[i] + d.between(-3, 4)) for i in axes]
    b.emit("CenterCropPad", [x, b.ints(sizes)], axes=axes)
