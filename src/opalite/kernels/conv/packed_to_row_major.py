"""Convolution from channel-packed blocks to few row-major channels, as in the last layer of image networks."""

from __future__ import annotations

from math import prod

import numpy as np

from ...ir.place import FLAT, packed
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_binding, packed_epilogue
from ..filter_window import Window, find_span, window_seconds
from ..kernel import Bindings, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .pack_filters import ConvProblem, PackedConv, bias_weight
from .register_tiles import tile_refusal

MAX_CHANNELS = 32  # more channels fill blocks of their own
_LONG_SUM = 1024  # terms of a lane, from which sums of blocks are worth their registers
_FINISH = 16  # vector operations for reducing the lanes and storing one element


@register
class ConvPackedToRowMajor(PackedConv):
    """NCHWc to NCHW; vector lanes hold input channels, so that few output channels waste no lanes."""

    rank = -1
    entry: str = "conv_last"
    space = {"TW": (4, 8, 6, 5, 3, 2, 1), "TM": (4, 3, 2, 1)}

    def phases(self, win: Window) -> int:
        """Distance of output columns that are adjacent in a tile."""
        return 1

    def filters(self, data: Array) -> Array:
        """The node's weights as [M, C, K...]."""
        return data

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        if node.as_(Convolution).group != 1:
            return f"the convolution has {node.as_(Convolution).group} groups"
        if node.y.shape[1] > MAX_CHANNELS:
            return f"{node.y.shape[1]} output channels fill blocks of their own"
        return p.packed_refusal

    def bindings(self, p: ConvProblem) -> Bindings:
        return (epilogue_binding(p.node, "packed", FLAT, packed(p.device.pack)),)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return tile_refusal(params["TM"], params["TW"], p.block, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        node = p.node
        columns, channels = ceil_div(p.window.out[2], self.phases(p.window)), node.y.shape[1]

        def loads(point: Params) -> float:
            tw, tm = int(point["TW"]), int(point["TM"])
            return ceil_div(columns, tw) * ceil_div(channels, tm) * (tw * tm + tw + tm)

        return min(self.points(p), key=loads)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        channels = p.node.x.shape[1]
        loads = 1 + 1 / min(p.node.y.shape[1], 4)
        waste = loads * ceil_div(channels, p.device.pack) * p.device.pack / channels
        flops = cost.flops * waste + _FINISH * p.device.pack * p.node.y.type.count
        return window_seconds(flops, cost.bytes, self.share(p.device), p.device)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, w, bias, y = node.x, node.input(1), node.get(2), node.y
        pack, storage, win = p.block, x.type.storage, p.window
        tw, tm = params["TW"], params["TM"]
        channels, in_blocks = y.shape[1], ceil_div(x.shape[1], pack)
        stride = self.phases(win) * tw
        d, h, width = win.out
        parts, rows = ceil_div(width, ceil_div(pack, stride) * stride) * d * h, ceil_div(channels, tm)
        span = find_span(parts, rows * x.shape[0], p.device)

        def order(data: Array) -> Array:
            """[M, C, K...] as [ceil(M / tm), in_blocks, taps, tm, pack]."""
            data = self.filters(data)
            taps = int(np.prod(data.shape[2:], dtype=np.int64))
            padded = np.zeros((rows * tm, in_blocks * pack, taps), storage.np)
            padded[: data.shape[0], : data.shape[1]] = data.reshape(*data.shape[:2], taps)
            return np.ascontiguousarray(padded.reshape(rows, tm, in_blocks, pack, taps).transpose(0, 2, 4, 1, 3))

        epilogue = packed_epilogue(node, p.device)
        args: Args = {
            "x": x,
            "weights": Weight(w, f"filter lanes {self.entry} i{pack} tile {tm} {storage}", order),
            "y": y,
        }
        args |= {} if bias is None else {"bias": bias_weight(bias, 1, storage)}
        args |= {"span": span, "batch": x.shape[0], "ib": in_blocks, "mt": channels, **win.args(), **epilogue.args}
        defines = win.defines() | {"PACK": pack, "TW": tw, "TM": tm, "HAS_BIAS": bias is not None}
        defines |= {"STORAGE": STORAGE[storage]}
        if in_blocks * prod(win.kernel) > _LONG_SUM:
            defines["IN_SUM_BLOCKS"] = 1
        grid = (ceil_div(parts, span), rows, x.shape[0])
        group = (1, 1, 1) if p.device.is_cpu else None
        return [Launch(self.entry, args, grid, group, defines, epilogue.prelude)]


@register
class ConvTransposePackedToRowMajor(ConvPackedToRowMajor):
    """NCHWc to NCHW; a tile is the output columns that use the same filter columns."""

    source = "conv/transposed_packed_to_row_major.cl"
    op = "ConvTranspose"
    rank = -3
    entry = "conv_transpose_last"

    def phases(self, win: Window) -> int:
        return win.strides[2]

    def filters(self, data: Array) -> Array:
        return data.swapaxes(0, 1)
