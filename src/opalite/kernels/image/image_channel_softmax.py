"""Softmax over the channels of tensors in images."""

from __future__ import annotations

from ...ops.softmax import Softmax
from ..kernel import Params, Problem, register
from ..launch import Args, Launch, ceil_div
from .image_layout import ImageKernel, image_prelude


@register
class ImageChannelSoftmax(ImageKernel):
    """A work-item loops over the channels of one position."""

    op = "Softmax"

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(Softmax).axis != 1:
            return f"channels are axis 1, the sum is over axis {p.node.as_(Softmax).axis}"
        return super().refuse(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, height, width = node.x.shape
        args: Args = {
            "x": node.x,
            "y": node.y,
            "channels": channels,
            "blocks": ceil_div(channels, 4),
            "width": width,
        }
        defines = {"LOG": node.as_(Softmax).log}
        return [
            Launch(
                "image_softmax",
                {**args, "rows": n * height},
                (width, n * height),
                defines=defines,
                prelude=image_prelude(node),
            )
        ]
