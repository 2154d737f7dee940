"""Sum, mean, maximum and minimum over height and width of tensors in images."""

from __future__ import annotations

from ...ops.reduce import Reduce
from ..codegen.epilogue import image_epilogue
from ..kernel import Params, Problem, register
from ..launch import Args, Launch, ceil_div
from ..launch_workgroups import group_refusal
from .image_layout import ImageKernel, image_prelude

KINDS = ("sum", "mean", "max", "min")


@register
class ImageReduce(ImageKernel):
    """A work-group (one work-item on a CPU) loops over all positions of one channel block."""

    op = "Reduce"
    space = {"SIDE": (8, 4, 16, 1)}

    def refuse(self, p: Problem) -> str | None:
        op = p.node.as_(Reduce)
        if op.kind not in KINDS:
            return f"{op.kind} is not among {', '.join(KINDS)}"
        if tuple(op.axes) != (2, 3) or not op.keepdims:
            return f"only axes 2 and 3, kept with size 1, got {op.axes}"
        return super().refuse(p)

    def illegal(self, p: Problem, params: Params) -> str | None:
        return group_refusal(params["SIDE"] ** 2, p.device)

    def defaults(self, p: Problem) -> Params:
        return {"SIDE": 1} if p.device.is_cpu else super().defaults(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, height, width = node.x.shape
        side, blocks = params["SIDE"], ceil_div(channels, 4)
        epilogue = image_epilogue(node, p.device)
        args: Args = {"x": node.x, "y": node.y, "channels": channels, "blocks": blocks, "height": height}
        args |= {"width": width}
        defines = {"KIND": KINDS.index(node.as_(Reduce).kind), "SIDE": side}
        grid, group = (blocks * side, side, n), (side, side, 1)
        return [Launch("image_reduce", {**args, **epilogue.args}, grid, group, defines, image_prelude(node, epilogue))]
