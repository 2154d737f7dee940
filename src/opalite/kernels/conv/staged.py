"""Convolution of channel-packed halves on matrix units, from stages in local memory."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ..base import Arg, Array, Launch, Params, Space, Weight, ceil_div
from ..codegen.epilogue import packed_epilogue
from ..mma.conv import PACK, MmaConv, conv_sizes, filter_quads
from ..mma.cost import FEWEST_POSITIONS, copies_pair
from ..mma.stages import SLAB, SPACE, find_tile, legal_tiles, pack_stages, tile_defines, tile_grid, tile_illegal
from ..registry import register
from ..sources import STORAGE
from ..window import Window
from .filters import bias_weight

MOST_TAPS = 63  # which of them lie inside the input is a set of bits


@register
class ConvStaged(MmaConv):
    """Both sides through local memory."""

    source = "conv/staged.cl"
    space: ClassVar[Space] = SPACE
    staged = True

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if why := super().refuse(node, device):
            return why
        taps, positions = math.prod(node.input(1).shape[2:]), conv_sizes(node)[0]
        if taps > MOST_TAPS:
            return f"filters of {taps} taps, at most {MOST_TAPS} are told apart"
        if positions < FEWEST_POSITIONS:
            return f"{positions} positions would leave most of a stage empty"
        if next(legal_tiles(device), None) is None:
            return f"no stages fit the {device.local_mem} bytes of local memory"
        return None

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        return tile_illegal(params, device)

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        return find_tile(*conv_sizes(node), device, paired=copies_pair(Window.of(node)))

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        x, bias, y, win = node.x, node.get(2), node.y, Window.of(node)
        positions, channels, quads = conv_sizes(node)
        blocks, in_blocks, slabs = ceil_div(channels, PACK), ceil_div(x.shape[1], PACK), params["SL"]
        taps = math.prod(win.kernel)
        turns = ceil_div(quads, SLAB * slabs)
        epilogue = packed_epilogue(node, device)

        def pack(data: Array) -> Array:
            return pack_stages(filter_quads(data), slabs)

        args: tuple[Arg, ...] = (x, Weight(node.input(1), f"filter stages of {slabs}", pack))
        args += () if bias is None else (bias_weight(bias, PACK, y.type.storage),)
        args += (y, _quad_table(win, in_blocks, turns * SLAB * slabs))
        args += (positions, ceil_div(channels, 16), turns * 2 * slabs, turns, in_blocks, blocks, channels)
        args += (*win.size, *win.out, *win.begin, *epilogue.args)
        defines = win.defines() | tile_defines(params) | {"PACK": PACK, "STORAGE": STORAGE[y.type.storage]}
        defines |= {"HAS_BIAS": bias is not None, "MASK": channels % PACK != 0, "WIDE": taps > 31}
        defines["PAIR"] = 2 if copies_pair(win) else 1
        grid, group = tile_grid(params, positions, channels)
        return [Launch("conv_staged", args, grid, group, defines, epilogue.prelude)]


def _quad_table(win: Window, in_blocks: int, count: int) -> Array:
    """int32[count, 2]: distance in blocks and tap of each quad; the tap after the last past the end."""
    (_, h, w), taps = win.size, math.prod(win.kernel)
    kd, kh, kw = win.kernel
    table = np.zeros((count, 2), np.int32)
    table[:, 1] = taps
    tap, block = np.divmod(np.arange(taps * in_blocks), in_blocks)
    z, y, x = (i * d for i, d in zip(np.unravel_index(tap, (kd, kh, kw)), win.dilations, strict=True))
    table[: tap.size, 0] = block * math.prod(win.size) + (z * h + y) * w + x
    table[: tap.size, 1] = tap
    return table
