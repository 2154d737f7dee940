"""Transposed convolution on channel-packed tensors."""

from __future__ import annotations

from math import prod

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ..filter_window import Window
from ..kernel import register
from ..launch import Defines, Weight, ceil_div
from .direct_packed import ConvPacked
from .pack_filters import Groups, filter_weight

_LONG_SUM = 2048
"""Terms from which a GPU spends registers on sums of blocks: a running sum of so many is as exact as theirs."""


@register
class ConvTransposePacked(ConvPacked):
    """NCHWc to NCHWc; a tile is the output columns that use the same filter columns."""

    op = "ConvTranspose"
    entry = "conv_transpose_packed"
    chunked = False
    moves_back = False
    banded = False

    def lines(self, win: Window) -> tuple[int, int]:
        d, h, w = win.out
        phases = win.strides[2]
        return ceil_div(w, phases), d * h * phases

    def window_defines(self, win: Window, groups: Groups, tw: int, storage: DType, device: DeviceInfo) -> Defines:
        terms = groups.in_blocks * groups.in_pack * prod(map(ceil_div, win.kernel, win.strides))
        return win.defines() | {"IN_SUM_BLOCKS": device.is_cpu or terms > _LONG_SUM}

    def filters(self, node: Node, groups: Groups, tile: int) -> Weight:
        return filter_weight(node.input(1), groups, tile, node.x.type.storage, transposed=True)
