"""Pooling on channel-packed tensors."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.pool import Pool
from ..codegen.epilogue import epilogue_refusal
from ..conv.per_channel_window import ChannelwisePacked
from ..filter_window import PACKED_TYPES, WindowProblem, empty_refusal, window_refusal
from ..kernel import register
from ..launch import Args, Defines
from .pool_row_major import kind_defines

_TYPES = (*PACKED_TYPES, DType.INT8, DType.UINT8)  # max-pooling of int8 tensors in quantised models


@register
class PoolPacked(ChannelwisePacked):
    """Maximum, average and Lp pooling without indices, NCHWc to NCHWc."""

    op = "Pool"

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
