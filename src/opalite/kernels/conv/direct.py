"""The convolution that serves every valid node: row-major tensors, any rank up to 3, weights constant or not."""

from __future__ import annotations

from typing import ClassVar

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.conv import Convolution
from ..base import Arg, Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..registry import register
from ..sources import STORAGE
from ..window import Window, window_refusal


@register
class ConvDirect(Kernel):
    """Direct convolution in NCHW; TM output channels to a work-item share each input element."""

    half_sums = True
    op = "Conv"
    source = "conv/direct.cl"
    entry: ClassVar[str] = "conv_direct"
    space: ClassVar[Space] = {"TM": (4, 1, 2, 8)}

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        return window_refusal(node) or epilogue_refusal(node, "packed")

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        win, x, bias, y = Window.of(node), node.x, node.get(2), node.y
        groups, tm = node.as_(Convolution).group, params["TM"]
        cg, mg = x.shape[1] // groups, y.shape[1] // groups
        epilogue = packed_epilogue(node, device)
        args: tuple[Arg, ...] = (x, node.input(1), *(() if bias is None else (bias,)), y, x.shape[0], cg, mg, groups)
        args += (*win.size, *win.out, *win.begin, *epilogue.args)
        defines = {**win.defines(), "TM": tm, "HAS_BIAS": bias is not None, "STORAGE": STORAGE[x.type.storage]}
        d, h, w = win.out
        grid = (d * h * w, groups * ceil_div(mg, tm), x.shape[0])
        return [Launch(self.entry, args, grid, defines=defines, prelude=epilogue.prelude)]
