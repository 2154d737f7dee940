"""Patch embedding: a convolution of non-overlapping patches becomes a matrix product, if its reader needs rows."""

from __future__ import annotations

import math

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.patch import Patch
from ...ir.symbols import hint_of
from ...ops.conv import Conv
from ...ops.data_movement import Reshape, Transpose
from ..fusion.fold_into_conv import constant_like
from ..rewrite_driver import Added, Rule, Sweep, joined_origin, maker_of
from .channels_last import is_patches, product_with_bias

_FEWEST = 512  # least number of patches for which it was measured to be faster
_NARROWEST = 8  # least width of a patch in pixels: 16 bytes of halves are copied at a time


def patches_to_matmul(device: DeviceInfo | None, fewest: int = _FEWEST) -> Rule:
    """Rule for GPUs without image2d layouts, whose products are faster than convolutions of few channels.

    The rule matches a convolution with non-overlapping windows whose output a Transpose turns to channels last, perhaps
    after a Reshape that flattens pixels, as at the start of vision transformers (Dosovitskiy et al., 2021). On
    an H200, a ViT-B/16 of batch 8 took 52 us for a cast to blocks, the convolution and the transpose, and takes 35 us
    for a cast, a transpose and a product.
    """
    if device is None or device.is_cpu or device.prefers_images:
        return lambda node, sweep: None

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, Transpose):
            return None
        conv, between = maker_of(node.x, node, sweep)
        if conv is None or not isinstance(conv.op, Conv) or conv.epilogue is not None or not is_patches(conv):
            return None
        x, y, rank = conv.x.dtype, conv.y.shape, len(node.x.shape)
        if node.op.perm != (0, *range(2, rank), 1) or (between and (len(y) != 4 or node.x.shape[:2] != y[:2])):
            return None
        if not x.is_float or x is DType.FLOAT64:
            return None
        if conv.input(1).shape[3] < _NARROWEST:
            return f"patches are {conv.input(1).shape[3]} pixels wide, too narrow to copy efficiently"
        count = hint_of(conv.y.shape[0] * math.prod(conv.y.shape[2:]))
        if count < fewest:
            return f"{count} patches are too few"
        added = Added()
        made = _product(conv, node, added)
        return Patch.replacing(node, *added, made, also=[conv, *between])

    return rule


def _product(conv: Node, last: Node, added: Added) -> Node:
    """The node that replaces `last`; its helpers are in `added`."""
    w = conv.input(1)
    m, c, kh, kw = w.shape
    n, _, h, wide = conv.y.shape
    apart = added.put(conv.make_helper(Reshape((n, c, h, kh, wide, kw)), [conv.x]))
    together = added.put(conv.make_helper(Transpose((0, 2, 4, 1, 3, 5)), [apart]))
    rows = added.put(conv.make_helper(Reshape((*last.y.shape[:-1], c * kh * kw)), [together]))
    matrix = constant_like(w, w.array.reshape(m, math.prod((c, kh, kw))).T)
    return product_with_bias(conv, rows, matrix, last.with_(origin=joined_origin(conv, last)), added)
