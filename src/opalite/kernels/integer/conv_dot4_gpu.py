"""Int8 convolution in one group on channel-packed tensors by 4-way dot-product instructions (GPU)."""

from __future__ import annotations

import math

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.place import packed
from ...ops.conv import Convolution
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..conv.pack_filters import ConvProblem
from ..kernel import Bindings, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .dot4_common import PACK, TiledDot4, digest, dot_defines, tile_cycles, words
from .int8_filter_window import (
    initial_sums_int32,
    integer_binding,
    integer_refusal,
    padded,
    subtract_zero_point,
    zero_define,
)


@register
class ConvDot4(TiledDot4):
    """NC4HW4 to NC4HW4; a work-item sums TP positions by TC blocks of four channels; SPLIT ones split the terms."""

    problem = ConvProblem
    op = "IntegerConv"
    space = {
        "TP": (2, 1, 4, 8),
        "TC": (2, 1, 4),
        "PX": (32, 8, 16, 64),
        "CY": (4, 1, 2, 8),
        "SPLIT": (1, 2, 4, 8),
    }
    block_axes = ("TP", "TC")
    group_axes = ("PX", "CY")
    tiles = tuple(
        (tp, tc, px, cy)
        for tp, tc in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (4, 4))
        for px, cy in ((32, 1), (32, 2), (32, 4), (32, 8), (8, 4), (8, 8))
    )

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        if node.as_(Convolution).group != 1:
            return f"{node.as_(Convolution).group} groups; words hold channels of one"
        return integer_refusal(node) or epilogue_refusal(node, "packed")

    def bindings(self, p: ConvProblem) -> Bindings:
        return (integer_binding(p.node, packed(PACK)),)

    def cycles(self, node: Node, params: Params, device: DeviceInfo) -> float | None:
        positions, blocks, ib = self._sizes(node)
        tp, tc, px, split = params["TP"], params["TC"], params["PX"], params["SPLIT"]
        if split > ib:
            return None
        tile = {"rows": tp, "columns": tc, "down": px, "across": params["CY"], "split": split}
        turns = math.prod(node.input(1).shape[2:]) * ceil_div(ib, split) * split
        return tile_cycles(positions, blocks, turns, tile, tp * 2 + tc * ceil_div(32, px), device)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, w, x_zero, w_zero, y = node.x, node.input(1), node.get(3), node.get(4), node.y
        win, tc = p.window, params["TC"]
        positions, blocks, ib = self._sizes(node)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {
            "x": x,
            "weights": _filters(w, tc),
            "y": y,
            "positions": positions,
            "ib": ib,
            "ob": blocks,
        }
        start = initial_sums_int32(node, tc * PACK)
        args |= {} if start is None else {"start": start}
        if x_zero is not None and x_zero.data is not None:
            args["zero"] = int(x_zero.data.reshape(()))
        elif x_zero is not None:
            args |= {"x_zero": x_zero, "sums": _sums(w, w_zero, tc)}
        args |= {} if w_zero is None else {"w_zero": _by_channel(w_zero, tc, y.shape[1])}
        args |= {"m": y.shape[1], **win.args(), **epilogue.args}
        defines = win.defines() | dot_defines(p.device, x.dtype, w.dtype) | dict(params)
        defines |= {"POINTWISE": win.is_pointwise, "HAS_START": start is not None, "X_ZERO": zero_define(x_zero)}
        defines |= {"W_ZERO": w_zero is not None, "TAIL": (x.shape[1] - 1) % PACK + 1, "PACK": PACK}
        defines |= {"MASK": y.shape[1] % PACK != 0, "STORAGE": STORAGE[y.type.storage]}
        px, cy, split = group = self.group_of(params)
        grid = (ceil_div(positions, px * params["TP"]) * px, ceil_div(blocks, tc * cy) * cy, split)
        return [Launch("conv_dot", args, grid, group, defines, epilogue.prelude)]

    @staticmethod
    def _sizes(node: Node) -> tuple[int, int, int]:
        """Output positions, output blocks, input blocks."""
        positions = node.y.shape[0] * math.prod(node.y.shape[2:])
        return positions, ceil_div(node.y.shape[1], PACK), ceil_div(node.x.shape[1], PACK)


def _filters(w: Value, tile: int) -> Weight:
    """Filters [M, C, K...] as uint32[tiles, taps, blocks of C, tile, 4], four input channels per word."""

    def pack(data: Array) -> Array:
        m, c = data.shape[:2]
        held = words(data.reshape(m, c, -1), 1)  # m, taps, blocks
        tiles = ceil_div(m, tile * PACK)
        padded = np.zeros((tiles * tile * PACK, *held.shape[1:]), np.uint32)
        padded[:m] = held
        return np.ascontiguousarray(padded.reshape(tiles, tile, PACK, *held.shape[1:]).transpose(0, 3, 4, 1, 2))

    return Weight(w, f"filter words tile {tile}", pack)


def _by_channel(v: Value, tile: int, channels: int) -> Weight:
    """Zero points in int32, one per channel of whole tiles; a single value is repeated for all `channels`."""

    def pack(data: Array) -> Array:
        return padded(np.broadcast_to(data.reshape(-1), channels), tile * PACK)

    return Weight(v, f"int32 by channel of {channels}, tile {tile}", pack)


def _sums(w: Value, w_zero: Value | None, tile: int) -> Weight:
    """Sums over each output channel's filter minus its zero point."""

    def pack(data: Array) -> Array:
        return padded(subtract_zero_point(data, w_zero).reshape(data.shape[0], -1).sum(1), tile * PACK)

    return Weight(w, f"filter sums less {digest(w_zero)}, tile {tile}", pack)
