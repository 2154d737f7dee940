"""Int8 depthwise convolution on CPUs with VNNI, channel-packed, four taps per lane and instruction."""

from __future__ import annotations

import numpy as np

from ...cost.cost_tables import IntegerTile
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.place import packed
from ...ir.symbols import hint_of
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import packed_epilogue
from ..conv.pack_filters import ConvProblem
from ..filter_window import Window, find_span
from ..kernel import Bindings, Kernel, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .dot4_common import WORD
from .int8_filter_window import integer_binding, zero_define
from .vnni_common import has_filter_zeros, initial_sums, vnni_refusal, vnni_seconds, zero_point_args

_MOST_SUMS = {16: 20}  # most accumulators of a tile, by vector lanes; 8 for others


@register
class DepthwiseVnni(Kernel):
    """NCHWc to NCHWc, one filter per channel (group = C = M); tiles of TG runs of columns of one block."""

    problem = ConvProblem
    op = "IntegerConv"
    space = {"TG": (4, 7, 5, 3, 2, 1)}

    def refuse(self, p: ConvProblem) -> str | None:
        if why := vnni_refusal(p):
            return why
        channels, group = (p.node.x.shape[1], p.node.y.shape[1]), p.node.as_(Convolution).group
        if channels != (group, group):
            return f"{channels[0]} to {channels[1]} channels in {group} groups is not depthwise"
        if has_filter_zeros(p.node):
            return "filters less their zero points are beyond int8"
        if p.window.size[2] < WORD:
            return f"rows of less than {WORD} pixels"
        return "taps of a row that are no neighbours" if p.window.dilations[2] > 1 < p.window.kernel[2] else None

    def bindings(self, p: ConvProblem) -> Bindings:
        return (integer_binding(p.node, packed(p.device.pack)),)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        _, share = _fours(p.window)
        most = _MOST_SUMS.get(p.device.pack, 8)
        return "the tile exceeds the registers" if params["TG"] * share > most else None

    def defaults(self, p: ConvProblem) -> Params:
        return min(self.points(p), key=lambda point: self._turns(p, point["TG"]))

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return vnni_seconds(p, self._turns(p, self.defaults(p)["TG"]), self.share(p.device), cost)

    def _turns(self, p: ConvProblem, tg: int) -> float:
        """VNNI instructions per core."""
        c, win, (fours, share) = IntegerTile.of(p.device), p.window, _fours(p.window)
        d, h, w = hint_of(win.out)
        tiles = (
            ceil_div(w, tg * share) * d * h * ceil_div(p.node.x.shape[1], p.device.pack) * hint_of(p.node.x.shape[0])
        )
        row = tg * fours * (c.stage + share) + c.turn
        each = c.begin + win.kernel[0] * win.kernel[1] * row + c.finish * tg * share
        return ceil_div(tiles, p.device.compute_units) * each

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, win, pack = p.node, p.window, p.device.pack
        x, y, tg = node.x, node.y, params["TG"]
        (fours, share), blocks = _fours(win), ceil_div(y.shape[1], pack)
        d, h, width = win.out
        tiles = ceil_div(width, tg * share) * d * h
        span = find_span(tiles, blocks * x.shape[0], p.device)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {
            "x": x,
            "weights": _filters(node.input(1), win, pack),
            "start": initial_sums(node, pack),
        }
        args |= {"y": y, "span": span, "batch": x.shape[0], "blocks": blocks, "channels": y.shape[1]}
        args |= {**zero_point_args(node, pack), **win.args(), **epilogue.args}
        defines = win.defines() | {"PACK": pack, "TG": tg, "NG": fours, "SHARE": share, "DOTS": 2}
        defines |= {"A_SIGNED": x.dtype is DType.INT8, "X_ZERO": zero_define(node.get(3))}
        defines |= {"MASK": y.shape[1] % pack != 0, "STORAGE": STORAGE[y.type.storage]}
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        return [Launch("depthwise_fours", args, grid, (1, 1, 1), defines, epilogue.prelude)]


def _fours(win: Window) -> tuple[int, int]:
    """(groups of four adjacent pixels that hold a row's taps, outputs that share them)."""
    taps, step = win.kernel[2], win.strides[2]
    fours = ceil_div(taps, WORD)
    return fours, (WORD * fours - taps) // step + 1


def _filters(w: Value, win: Window, pack: int) -> Weight:
    """Filters [C, 1, K...] as words of four taps, shifted for each output that shares the pixels."""
    (fours, share), step = _fours(win), win.strides[2]

    def words(data: Array) -> Array:
        channels, taps = data.shape[0], win.kernel[2]
        rows = data.reshape(channels, -1, taps)
        blocks = ceil_div(channels, pack)
        out = np.zeros((blocks * pack, rows.shape[1], share, fours * WORD), np.int8)
        for s in range(share):
            out[:channels, :, s, s * step : s * step + taps] = rows
        held = out.view("<u4").reshape(blocks, pack, rows.shape[1], share, fours)
        return np.ascontiguousarray(held.transpose(0, 2, 4, 3, 1))

    return Weight(w, f"depthwise fours o{pack} share {share} by {step} of {win.kernel}", words)
