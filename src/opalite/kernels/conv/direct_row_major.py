"""Convolution and transposed convolution for every valid node: row-major tensors, any rank up to 3, any weights."""

from __future__ import annotations

from ...ops.conv import Convolution
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..filter_window import window_refusal
from ..kernel import Kernel, Params, register
from ..launch import STORAGE, Args, Launch, ceil_div
from .pack_filters import ConvProblem


@register
class ConvDirect(Kernel):
    """Direct convolution in NCHW; TM output channels of a work-item share each input load."""

    rank = -1
    problem = ConvProblem
    half_sums = True
    op = "Conv"
    entry: str = "conv_direct"
    space = {"TM": (4, 1, 2, 8)}

    def refuse(self, p: ConvProblem) -> str | None:
        return window_refusal(p.node) or epilogue_refusal(p.node, "packed")

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        win, x, bias, y = p.window, node.x, node.get(2), node.y
        groups, tm = node.as_(Convolution).group, params["TM"]
        cg, mg = x.shape[1] // groups, y.shape[1] // groups
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "w": node.input(1), "y": y, "batch": x.shape[0], "cg": cg, "mg": mg, "groups": groups}
        args |= ({} if bias is None else {"bias": bias}) | {**win.args(), **epilogue.args}
        defines = {**win.defines(), "TM": tm, "HAS_BIAS": bias is not None, "STORAGE": STORAGE[x.type.storage]}
        d, h, w = win.out
        grid = (d * h * w, groups * ceil_div(mg, tm), x.shape[0])
        return [Launch(self.entry, args, grid, defines=defines, prelude=epilogue.prelude)]


@register
class ConvTransposeDirect(ConvDirect):
    """Gathers the inputs of each output element, so that no two work-items write the same element."""

    source = "conv/transposed_row_major.cl"
    op = "ConvTranspose"
    rank = -2
    entry = "conv_transpose_direct"
