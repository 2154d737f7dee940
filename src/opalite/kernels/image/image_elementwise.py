"""Elementwise on images: the expression is the epilogue of a copy."""

from __future__ import annotations

from ...ir.place import IMAGE, texel_dims
from ..codegen.epilogue import image_epilogue
from ..elementwise.elementwise_packed import as_epilogue, copy_binding, copy_refusal, main_operand
from ..kernel import Bindings, Params, Problem, register
from ..launch import Args, Launch, ceil_div
from .image_layout import ImageKernel, image_prelude, image_refusal


@register
class ImageElementwise(ImageKernel):
    """Copies one operand of the output's shape through the expression; the others may broadcast along any axis."""

    op = "Elementwise"

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        return image_refusal(p.device, node.y.type) or copy_refusal(node, "image")

    def bindings(self, p: Problem) -> Bindings:
        return (copy_binding(p.node, "image", IMAGE),)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        main = main_operand(node)
        assert main is not None
        epilogue = image_epilogue(as_epilogue(node, main), p.device)
        n, channels, height, width = texel_dims(node.y.shape)
        blocks = ceil_div(channels, 4)
        args: Args = {"x": node.input(main), "y": node.y, "channels": channels, "blocks": blocks, "height": height}
        args |= {"width": width, "rows": n * height, **epilogue.args}
        return [Launch("image_elementwise", args, (blocks * width, n * height), prelude=image_prelude(node, epilogue))]
