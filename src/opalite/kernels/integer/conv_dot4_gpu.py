"""Int8 convolution in one group on channel-packed tensors by 4-way dot-product instructions (GPU)."""

from __future__ import annotations

import math

import numpy as np

from ...cost.cost_tables import IntegerDot
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import packed
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..conv.pack_filters import ConvProblem
from ..kernel import Bindings, Kernel, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .dot4_common import PACK, TiledDot4, digest, dot_defines, dot_seconds, tile_cycles, words
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
    space = {"TP": (2, 1, 4, 8), "TC": (2, 1, 4), "PX": (32, 8, 16, 64), "CY": (4, 1, 2, 8), "SPLIT": (1, 2, 4, 8)}
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
        args: Args = {"x": x, "weights": _filters(w, tc), "y": y, "positions": positions, "ib": ib, "ob": blocks}
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
        if p.device.reads_texels(ceil_div(blocks, tc) * math.prod(w.shape[2:]) * ib * tc):
            defines["TEXELS"] = 1
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


@register
class DepthwiseDot4(Kernel):
    """NCHWc to NCHWc, one filter per channel (group = C = M); a work-item owns TW columns of one block."""

    source = "integer/depthwise_dot4_gpu.cl"
    problem = ConvProblem
    op = "IntegerConv"
    space = {"TW": (2, 1, 4, 7)}

    def refuse(self, p: ConvProblem) -> str | None:
        return p.depthwise_refusal or integer_refusal(p.node) or epilogue_refusal(p.node, "packed")

    def bindings(self, p: ConvProblem) -> Bindings:
        return (integer_binding(p.node, packed(p.device.pack)),)

    def defaults(self, p: ConvProblem) -> Params:
        win = p.window
        items = p.node.x.shape[0] * ceil_div(p.node.y.shape[1], p.device.pack) * win.out[0] * win.out[1] * win.out[2]
        enough = p.device.compute_units * max(p.device.wave_size, 32) * 8
        return {"TW": next((tw for tw in (4, 2) if items // tw >= enough and tw <= win.out[2]), 1)}

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return dot_seconds(p.device, cost, IntegerDot.of(p.device).depthwise)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, w, bias, x_zero, y = node.x, node.input(1), node.get(2), node.get(3), node.y
        win, pack, channels = p.window, p.block, y.shape[1]
        blocks = ceil_div(channels, pack)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "w": _depthwise_filters(w, node.get(4), pack), "y": y}
        if bias is not None:
            args["bias"] = Weight(bias, f"integer bias o{pack}", lambda data: padded(data, pack))
        if x_zero is not None:
            args["x_zero"] = x_zero if x_zero.data is None else int(x_zero.data.reshape(()))
        args |= {"batch": x.shape[0], "blocks": blocks, "channels": channels, **win.args(), **epilogue.args}
        defines = win.defines() | {"PACK": pack, "HAS_BIAS": bias is not None, "X_ZERO": zero_define(x_zero)}
        defines |= {"MASK": channels % pack != 0, "A_SIGNED": x.dtype is DType.INT8, "TW": params["TW"]}
        defines["STORAGE"] = STORAGE[y.type.storage]
        d, h, width = win.out
        grid = (ceil_div(width, params["TW"]) * d * h, blocks, x.shape[0])
        return [Launch("integer_depthwise", args, grid, None, defines, epilogue.prelude)]


def _depthwise_filters(w: Value, zero: Value | None, pack: int) -> Weight:
    """Filters [C, 1, K...] minus their zero points as int32[blocks, taps, pack]."""

    def blocks(data: Array) -> Array:
        taps = subtract_zero_point(data, zero).reshape(data.shape[0], -1)
        padded = np.zeros((ceil_div(taps.shape[0], pack) * pack, taps.shape[1]), np.int32)
        padded[: taps.shape[0]] = taps
        return np.ascontiguousarray(padded.reshape(-1, pack, taps.shape[1]).swapaxes(1, 2))

    return Weight(w, f"integer depthwise filter o{pack} less {digest(zero)}", blocks)
