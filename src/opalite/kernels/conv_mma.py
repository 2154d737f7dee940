"""Convolution of channel-packed halves on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..ir.device import DeviceInfo
from ..ir.graph import Node
from ..ir.place import packed
from ..ops.base import Cost
from .base import Arg, Array, Binding, Kernel, Launch, Params, Space, Weight, ceil_div, register
from .conv_filters import bias_weight
from .conv_packed import packed_refusal
from .epilogue import operand_layouts, packed_epilogue
from .mma import QUADS, SPACE, find_tile, mma_refusal, pack_weights, tile_defines, tile_grid, tile_illegal
from .mma_cost import copies_pair, mma_seconds
from .sources import STORAGE
from .window import Window

PACK = 4


@register
class ConvMma(Kernel):
    """NC4HW4 to NC4HW4 in one group: a matrix product over positions; few tiles share out their steps over warps."""

    op = "Conv"
    source = "conv_mma.cl"
    space: ClassVar[Space] = SPACE

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if node.attrs["group"] != 1:
            return f"{node.attrs['group']} groups; matrix units want all channels in one product"
        return mma_refusal(node, device) or packed_refusal(node)

    def bindings(self, node: Node, device: DeviceInfo) -> Sequence[Binding]:
        y = packed(PACK)
        constants = (None,) * len(node.inputs[1:3])
        return (Binding((y, *constants, *operand_layouts(node, "packed", y)), (y,)),)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        return tile_illegal(params, device)

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        return find_tile(self._positions(node), node.y.shape[1], self._steps(node), device)

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        sizes, paired = (
            (self._positions(node), node.y.shape[1], QUADS * self._steps(node)),
            copies_pair(Window.of(node)),
        )
        return mma_seconds(*sizes, device, cost, staged=False, paired=paired)

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        x, bias, y, win = node.x, node.get(2), node.y, Window.of(node)
        channels, positions = y.shape[1], self._positions(node)
        blocks, in_blocks = ceil_div(channels, PACK), ceil_div(x.shape[1], PACK)
        epilogue = packed_epilogue(node, device)
        args: tuple[Arg, ...] = (x, Weight(node.input(1), "filter mma", _pack_filters))
        args += () if bias is None else (bias_weight(bias, PACK, y.type.storage),)
        args += (y, positions, ceil_div(channels, 16), self._steps(node), in_blocks, blocks, channels)
        args += (*win.size, *win.out, *win.begin, *epilogue.args)
        defines = win.defines() | tile_defines(params)
        defines |= {"PACK": PACK, "HAS_BIAS": bias is not None, "MASK": channels % PACK != 0}
        defines["STORAGE"] = STORAGE[y.type.storage]
        grid, group = tile_grid(params, positions, channels)
        return [Launch("conv_mma", args, grid, group, defines, epilogue.prelude)]

    @staticmethod
    def _positions(node: Node) -> int:
        return node.y.shape[0] * math.prod(node.y.shape[2:])

    @staticmethod
    def _steps(node: Node) -> int:
        return ceil_div(math.prod(node.input(1).shape[2:]) * ceil_div(node.x.shape[1], PACK), QUADS)


def _pack_filters(data: Array) -> Array:
    """Filters [M,C,K...] with the taps outside the channel blocks."""
    m, c = data.shape[:2]
    blocks = ceil_div(c, PACK)
    padded = np.zeros((m, blocks * PACK, math.prod(data.shape[2:])), np.float16)
    padded[:, :c] = data.reshape(m, c, -1)
    return pack_weights(padded.transpose(0, 2, 1).reshape(m, -1, 4))
