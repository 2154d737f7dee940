"""Pooling: row-major for every valid node (any rank up to 3, indices, all kinds), channel-packed without indices."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.pool import Pool
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..conv.per_channel_window import ChannelwisePacked
from ..filter_window import PACKED_TYPES, WindowProblem, empty_refusal, window_refusal
from ..kernel import Kernel, Params, register
from ..launch import STORAGE, Args, Defines, Launch

KINDS = {"max": 0, "average": 1, "lp": 2}
"""The KIND define of the pooling kernels."""


def kind_defines(node: Node) -> Defines:
    """The defines that select the computation of a Pool node over a window."""
    op = node.as_(Pool)
    return {"KIND": KINDS[op.kind], "COUNT_PADS": op.count_include_pad, "P": op.p}


@register
class PoolDirect(Kernel):
    """One output element per work-item, in NCHW."""

    source = "pool/pool_row_major.cl"
    problem = WindowProblem
    op = "Pool"

    def refuse(self, p: WindowProblem) -> str | None:
        node = p.node
        if node.as_(Pool).kind != "max" and not node.x.dtype.is_float:
            return f"{node.as_(Pool).kind} pooling of {node.x.dtype}"
        return window_refusal(node) or epilogue_refusal(node, "packed")

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node = p.node
        win, x = p.window, node.x
        indices = 0 if len(node.outputs) == 1 else 1 + node.as_(Pool).storage_order
        epilogue = packed_epilogue(node, p.device)
        args: Args = dict(zip(("y", "index"), node.outputs, strict=False))
        args |= {"x": x, "batch": x.shape[0], "channels": x.shape[1], **win.args(ends=True), **epilogue.args}
        defines = {**win.defines(), **kind_defines(node), "INDICES": indices, "STORAGE": STORAGE[x.type.storage]}
        d, h, w = win.out
        grid = (d * h * w, x.shape[1], x.shape[0])
        return [Launch("pool_direct", args, grid, defines=defines, prelude=epilogue.prelude)]


_TYPES = (*PACKED_TYPES, DType.INT8, DType.UINT8)  # max-pooling of int8 tensors in quantised models


@register
class PoolPacked(ChannelwisePacked):
    """Maximum, average and Lp pooling without indices, NCHWc to NCHWc."""

    op = "Pool"
    rank = 1

    def refuse(self, p: WindowProblem) -> str | None:
        node = p.node
        if len(node.outputs) > 1:
            return "positions of the maxima are asked for"
        if node.x.dtype not in _TYPES:
            return f"channel-packed tensors do not hold {node.x.dtype}"
        if node.as_(Pool).kind != "max" and not node.x.dtype.is_float:
            return f"{node.as_(Pool).kind} pooling of {node.x.dtype}"
        return window_refusal(node) or empty_refusal(node) or epilogue_refusal(node, "packed")

    def constants(self, node: Node, pack: int) -> Args:
        return {}

    def kind(self, node: Node) -> Defines:
        return kind_defines(node)
