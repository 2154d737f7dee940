"""Elementwise on tensors held as images: the expression becomes the epilogue of a copy."""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.core import Expr
from ...ir.place import IMAGE
from ...ops.elementwise import Elementwise
from ..base import Arg, Binding, Launch, Params, Problem, ceil_div
from ..codegen.epilogue import epilogue_refusal, image_epilogue, operand_layouts
from ..elementwise.packed import as_epilogue, main_operand
from ..registry import register
from .layout import ImageKernel, image_prelude, image_refusal


@register
class ImageElementwise(ImageKernel):
    """One operand has the output's shape and is copied through the expression; any axis of the others may be 1."""

    op = "Elementwise"
    source = "image/elementwise.cl"

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        why = image_refusal(p.device, node.y.type)
        if why is not None:
            return why
        if any(v is not None and v.dtype is not node.y.dtype for v in node.inputs):
            return "operands have other element types than the result"
        expr: Expr = node.as_(Elementwise).expr
        if expr.uses_coords:
            return "the expression depends on coordinates"
        main = main_operand(node)
        if main is None:
            return "no operand that is not constant has the output's shape"
        return epilogue_refusal(as_epilogue(node, main), "image")

    def bindings(self, p: Problem) -> Sequence[Binding]:
        main = main_operand(p.node)
        assert main is not None
        rest = iter(operand_layouts(as_epilogue(p.node, main), "image", IMAGE))
        return (Binding(tuple(IMAGE if i == main else next(rest) for i in range(len(p.node.inputs))), (IMAGE,)),)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        main = main_operand(node)
        assert main is not None
        epilogue = image_epilogue(as_epilogue(node, main), p.device)
        n, channels, height, width = node.y.shape
        blocks = ceil_div(channels, 4)
        args: dict[str, Arg] = {
            "x": node.input(main),
            "y": node.y,
            "channels": channels,
            "blocks": blocks,
            "height": height,
        }
        args |= {"width": width, "rows": n * height, **epilogue.args}
        return [Launch("image_elementwise", args, (blocks * width, n * height), prelude=image_prelude(node, epilogue))]
