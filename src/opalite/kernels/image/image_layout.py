"""Base of kernels on image2d tensors: image limits, bindings, prelude.

Texels are read and written as float4 whatever the image stores; half images convert by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...cost.cost_tables import Windows
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import IMAGE, texel_dims
from ...ir.symbols import always_equal
from ...ir.tensor_type import TensorType
from ...ops.conv import Windowed
from ...ops.operator import Cost
from ...ops.pool import Pool
from ..codegen.epilogue import Epilogue, epilogue_binding, epilogue_refusal
from ..filter_window import Window
from ..kernel import Bindings, Kernel
from ..kernel_sources import read_source
from ..launch import Array

IMAGE_TYPES = (DType.FLOAT32, DType.FLOAT16)
"""Element types that texels hold."""


AXES = {4: "nchw", 3: "nhc", 2: "hc", 1: "c"}
"""The axes of an image that a tensor's axes are, by its number of dimensions (`texel_dims`)."""

RANKS = tuple(sorted(AXES))
"""Numbers of dimensions of tensors that images hold."""


def image_refusal(device: DeviceInfo, *types: TensorType, ranks: Sequence[int] = RANKS) -> str | None:
    """The reason why `device` cannot hold tensors of `types` in images, or their rank is not in `ranks`; or None."""
    if not device.image_support:
        return "the device has no images"
    for t in types:
        if t.dtype not in IMAGE_TYPES:
            return f"images hold floats, not {t.dtype}"
        if len(t.shape) not in RANKS:
            return f"images hold tensors of one to four dimensions, not {t}"
        if len(t.shape) not in ranks:
            return f"it takes images of tensors N,C,H,W, not of {t}"
        if t.count == 0:
            return f"{t} has no elements, and there are no empty images"
        why = texture_refusal(device, *IMAGE.image_size(t.shape))
        if why is not None:
            return f"{t} {why}"
    return None


def is_same_image(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether shapes `a` and `b`, of equal element count, place elements in the same texels."""
    (_, c, h, w), (_, channels, height, width) = texel_dims(tuple(a)), texel_dims(tuple(b))
    if not always_equal(c, channels):
        return False
    in_order = [
        len(s) < 4 or (always_equal(y, 1) and always_equal(x, 1)) for s, y, x in ((a, h, w), (b, height, width))
    ]
    return all(in_order)


def texture_refusal(device: DeviceInfo, width: int, height: int) -> str | None:
    """The reason why an image of `width` x `height` texels exceeds the device's limits, or None."""
    if device.fits_image(width, height):
        return None
    limit = "×".join(map(str, device.image2d_max))
    return f"would be an image of {width}×{height} texels; the device allows {limit}"


def image_window(node: Node) -> Window:
    """The window of a Conv or Pool node with the last axis as width, even if that axis is idle."""
    op = node.as_(Windowed)
    kernel = op.kernel if isinstance(op, Pool) else node.input(1).shape[2:]
    (_, _, *size), (_, _, *out) = node.x.shape, node.y.shape
    (kh, kw), (sh, sw), (dh, dw), (top, left, bottom, right) = kernel, op.strides, op.dilations, op.pads
    return Window(
        kernel=(1, kh, kw),
        strides=(1, sh, sw),
        dilations=(1, dh, dw),
        begin=(0, top, left),
        end=(0, bottom, right),
        size=(1, size[0], size[1]),
        out=(1, out[0], out[1]),
    )


def image_prelude(node: Node, epilogue: Epilogue | None = None) -> str:
    """Text in front of an image kernel: texel access, then the epilogue."""
    half = node.y.type.storage is DType.FLOAT16
    own = "" if epilogue is None else epilogue.prelude
    return f"#define HALF_TEXELS {int(half)}\n{read_source('image/texel_access.cl')}{own}"


class ImageKernel(Kernel):
    """Base class of kernels whose first input and output are images; other inputs are constants.

    ranks: supported numbers of dimensions. overlaps: whether the estimate hides reads behind arithmetic, as that of the
    buffer kernels it competes with does.
    """

    images_only = True
    ranks: Sequence[int] = (4,)
    overlaps: bool = False

    def refuse(self, p: Any) -> str | None:
        node = p.node
        if why := image_refusal(p.device, node.x.type, node.y.type, ranks=self.ranks):
            return why
        for i in range(1, node.op.arity):
            v = node.get(i)
            if v is not None and not v.is_const:
                return f"input {i} is not constant, so it cannot be packed ahead of time"
        return epilogue_refusal(node, "image") if node.op.takes_epilogue else None

    def bindings(self, p: Any) -> Bindings:
        return (epilogue_binding(p.node, "image", IMAGE),)

    def seconds(self, p: Any, cost: Cost) -> float:
        device: DeviceInfo = p.device
        both = cost.flops / (device.peak_flops * self.share(device)), cost.bytes / device.bandwidth
        work = max(both) if self.overlaps else sum(both)
        return work / (Windows.of(device).texture_gain if device.prefers_images else 1.0) + device.launch_s


def blocks_to_texels(blocks: Array) -> Array:
    """[N, C/4, H, W, 4] as rows of an image: [N * H, C/4 * W, 4]."""
    n, cb, h, w, _ = blocks.shape
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3, 4).reshape(n * h, cb * w, 4))


def texels_to_blocks(rows: Array, shape: Sequence[int]) -> Array:
    """The inverse of `blocks_to_texels` for a tensor of logical `shape`."""
    n, c, h, w = texel_dims(tuple(shape))
    return np.ascontiguousarray(rows.reshape(n, h, -(-c // 4), w, 4).transpose(0, 2, 1, 3, 4))
