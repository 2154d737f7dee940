"""Softmax over the channels of tensors held as images."""

from __future__ import annotations

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.softmax import Softmax
from ..base import Launch, Params, ceil_div
from ..registry import register
from .layout import ImageKernel, image_prelude


@register
class ImageSoftmax(ImageKernel):
    """A work-item walks the channels of one position."""

    op = "Softmax"
    source = "image/softmax.cl"

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if node.as_(Softmax).axis != 1:
            return f"channels are axis 1, the sum is over axis {node.as_(Softmax).axis}"
        return super().refuse(node, device)

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        n, channels, height, width = node.x.shape
        args = (node.x, node.y, channels, ceil_div(channels, 4), width, n * height)
        defines = {"LOG": node.as_(Softmax).log}
        return [Launch("image_softmax", args, (width, n * height), defines=defines, prelude=image_prelude(node))]
