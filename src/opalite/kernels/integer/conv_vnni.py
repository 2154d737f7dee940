"""Int8 convolution on CPUs with VNNI, channel-packed, four channels per lane and instruction."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from ...cost.cost_tables import IntegerTile
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import Layout, packed
from ...ir.symbols import hint_of, may_be_less, tile_at_most
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import packed_epilogue
from ..conv.pack_filters import ConvProblem, Groups, pack_filters
from ..conv.register_tiles import TILE_BLOCKS, TILE_WIDTHS
from ..filter_window import Window, find_span
from ..kernel import Binding, Bindings, Kernel, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .dot4_common import WORD, digest
from .int8_filter_window import (
    initial_sums,
    integer_binding,
    padded,
    vnni_refusal,
    vnni_seconds,
    zero_define,
    zero_point_args,
)

_REGISTERS = {16: 32}  # vector registers by vector lanes; 16 for others


class VnniProblem(ConvProblem):
    """An int8 convolution with its window, groups and zero points."""

    @cached_property
    def has_filter_zeros(self) -> bool:
        """Whether the filters, converted to signed, have zero points."""
        zero = self.node.get(4)
        unsigned = self.node.input(1).dtype is DType.UINT8
        return unsigned or (zero is not None and (zero.data is None or bool(zero.data.any())))


@register
class ConvVnni(Kernel):
    """NCHWc to NCHWc; a work-item owns tiles of TW columns and TB output blocks. x may have blocks of 4 channels."""

    problem = VnniProblem
    op = "IntegerConv"
    rank = -1
    space = {"TW": TILE_WIDTHS, "TB": TILE_BLOCKS}

    def refuse(self, p: VnniProblem) -> str | None:
        if why := vnni_refusal(p):
            return why
        op, channels = p.node.as_(Convolution), p.node.x.shape[1]
        if op.group == channels == p.node.y.shape[1] > 1:
            return "a depthwise convolution has one channel to sum"
        if why := p.merge_refusal(p.device.pack, p.device.pack):
            return why
        merged = p.groups(p.device.pack, p.device.pack).merged
        return "merged groups share sums of x" if merged > 1 and p.has_filter_zeros else None

    def bindings(self, p: VnniProblem) -> Bindings:
        y = packed(p.device.pack)
        own = integer_binding(p.node, y)
        x = packed(WORD) if p.node.x.shape[1] <= WORD < p.device.pack else y
        return (Binding((x, *own.inputs[1:]), own.outputs),)

    def illegal(self, p: VnniProblem, params: Params) -> str | None:
        tw, tb = params["TW"], params["TB"]
        more = tw if p.has_filter_zeros else 0
        held = tw * tb + tb + 1 + more
        return "the tile exceeds the registers" if held > _REGISTERS.get(p.device.pack, 16) else None

    def defaults(self, p: VnniProblem) -> Params:
        turns = self._turns(p)
        return min(self.points(p), key=lambda point: turns(point["TW"], point["TB"]))

    def seconds(self, p: VnniProblem, cost: Cost) -> float:
        tile = self.defaults(p)
        return vnni_seconds(p, self._turns(p)(tile["TW"], tile["TB"]), self.share(p.device), cost)

    def _turns(self, p: VnniProblem) -> Callable[[int, int], float]:
        """Function of TW and TB: VNNI instructions per core."""
        win, c, g = p.window, IntegerTile.of(p.device), p.groups(_in_pack(p), p.device.pack)
        columns, rows = hint_of(_lines(p))
        lines, channels = rows * hint_of(p.node.x.shape[0]), ceil_div(g.channels, WORD)
        taps, fetched, by_zeros = math.prod(win.kernel), 0.0, int(p.has_filter_zeros)
        if not win.is_pointwise or p.node.x.dtype is DType.INT8:
            loads, _, _ = win.runs()
            fetched = c.stage * math.prod(win.kernel[:2]) * loads

        def turns(tw: int, tb: int) -> float:
            blocks = g.count * ceil_div(g.out_blocks, tb)
            met = g.in_blocks if g.merged == 1 else g.reach(tb)
            turn = max(tw * tb, c.latency, c.load * (tb + tw)) + c.turn + tw * by_zeros
            words = met / g.in_blocks * channels * taps
            each = c.begin + words * turn + fetched * met * tw + c.finish * tw * tb
            return ceil_div(ceil_div(columns, tw) * lines * blocks, p.device.compute_units) * each

        return turns

    def launch(self, p: VnniProblem, params: Params) -> list[Launch]:
        node, win, pack = p.node, p.window, p.device.pack
        x, w, x_zero, y = node.x, node.input(1), node.get(3), node.y
        g, tw, tb = p.groups(x.type.layout.pack, pack), params["TW"], params["TB"]
        columns, rows = _lines(p)
        tw = tile_at_most(tw, columns)
        tiles, blocks = ceil_div(columns, tw) * rows, g.count * ceil_div(g.out_blocks, tb)
        span = find_span(tiles, blocks * x.shape[0], p.device, math.prod(win.kernel) * g.channels * tb * pack)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "weights": _filters(w, g, tb), "start": initial_sums(node, pack), "y": y}
        args |= zero_point_args(node, pack)
        if p.has_filter_zeros:
            args["w_zero"] = _zeros(node, pack)
        args |= {"span": span, "batch": x.shape[0], "groups": g.count, "cg": g.channels}
        args |= {"ib": g.in_blocks, "ob": g.out_blocks, "m": y.shape[1]}
        if g.merged > 1:
            args |= {"own_in": g.channels // g.merged, "own_out": g.filters // g.merged}
        sizes = win.args()
        if win.is_pointwise:
            sizes |= {"id": 1, "ih": 1, "od": 1, "oh": 1, "iw": columns, "ow": columns}
        _, run, step = win.runs()
        defines = win.defines() | {"PACK": pack, "TW": tw, "TB": tb, "DOTS": 2, "RUN": run, "STEP": step}
        defines |= {"POINTWISE": win.is_pointwise, "X_WORDS": g.in_pack // WORD, "X_ZERO": zero_define(x_zero)}
        defines |= {"A_SIGNED": x.dtype is DType.INT8, "W_ZERO": p.has_filter_zeros, "BANDED": g.merged > 1}
        defines |= {"MASK": y.shape[1] % pack != 0, "STORAGE": STORAGE[y.type.storage]}
        defines["NARROW"] = bool(may_be_less(columns, tw))
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        return [Launch("conv_fours", {**args, **sizes, **epilogue.args}, grid, (1, 1, 1), defines, epilogue.prelude)]


def _in_pack(p: ConvProblem) -> int:
    layout: Layout = p.node.x.type.layout
    if not layout.is_row_major:
        return layout.pack
    return WORD if p.node.x.shape[1] <= WORD else p.device.pack


def _lines(p: ConvProblem) -> tuple[int, int]:
    """(adjacent output positions from which tiles are cut, such lines per channel)."""
    d, h, w = p.window.out
    return (d * h * w, 1) if p.window.is_pointwise else (w, d * h)


def _filters(w: Value, groups: Groups, tile: int) -> Weight:
    """Filters [M, C / group, K...] as words of four signed bytes."""
    g = groups

    def pack(data: Array) -> Array:
        signed = data if data.dtype == np.int8 else (data ^ 0x80).view(np.int8)
        blocks = pack_filters(signed, g, tile, DType.INT8)  # ..., channels of a block, tile, lanes
        shape = blocks.shape
        held = blocks.reshape(*shape[:-3], g.in_pack // WORD, WORD, *shape[-2:])
        return np.ascontiguousarray(np.moveaxis(held, -3, -1)).view("<u4")[..., 0]

    form = f"filter fours {g.count}x{g.merged} groups i{g.in_pack} o{g.pack} tile {tile}"
    return Weight(w, form, pack)


def _zeros(node: Node, block: int) -> Weight:
    """Zero points of the filters in signed form, by output channel."""
    w, zero = node.input(1), node.get(4)
    own = np.zeros(1, np.int32) if zero is None or zero.data is None else zero.data.reshape(-1).astype(np.int32)
    shift = 128 if w.dtype is DType.UINT8 else 0
    form = f"zeros {digest(zero)} of fours {block}"
    return Weight(w, form, lambda data: padded(np.broadcast_to(own - shift, data.shape[0]), block))


_MOST_SUMS = {16: 20}  # most accumulators of a tile, by vector lanes; 8 for others


@register
class DepthwiseVnni(Kernel):
    """NCHWc to NCHWc, one filter per channel (group = C = M); tiles of TG runs of columns of one block."""

    source = "integer/depthwise_vnni.cl"
    problem = VnniProblem
    op = "IntegerConv"
    space = {"TG": (4, 7, 5, 3, 2, 1)}

    def refuse(self, p: VnniProblem) -> str | None:
        if why := vnni_refusal(p) or p.depthwise_refusal:
            return why
        if p.has_filter_zeros:
            return "filters less their zero points are beyond int8"
        if p.window.size[2] < WORD:
            return f"rows of less than {WORD} pixels"
        return "taps of a row that are no neighbours" if p.window.dilations[2] > 1 < p.window.kernel[2] else None

    def bindings(self, p: VnniProblem) -> Bindings:
        return (integer_binding(p.node, packed(p.device.pack)),)

    def illegal(self, p: VnniProblem, params: Params) -> str | None:
        _, share = _fours(p.window)
        most = _MOST_SUMS.get(p.device.pack, 8)
        return "the tile exceeds the registers" if params["TG"] * share > most else None

    def defaults(self, p: VnniProblem) -> Params:
        return min(self.points(p), key=lambda point: self._turns(p, point["TG"]))

    def seconds(self, p: VnniProblem, cost: Cost) -> float:
        return vnni_seconds(p, self._turns(p, self.defaults(p)["TG"]), self.share(p.device), cost)

    def _turns(self, p: VnniProblem, tg: int) -> float:
        """VNNI instructions per core."""
        c, win, (fours, share) = IntegerTile.of(p.device), p.window, _fours(p.window)
        d, h, w = hint_of(win.out)
        tiles = (
            ceil_div(w, tg * share) * d * h * ceil_div(p.node.x.shape[1], p.device.pack) * hint_of(p.node.x.shape[0])
        )
        row = tg * fours * (c.stage + share) + c.turn
        each = c.begin + win.kernel[0] * win.kernel[1] * row + c.finish * tg * share
        return ceil_div(tiles, p.device.compute_units) * each

    def launch(self, p: VnniProblem, params: Params) -> list[Launch]:
        node, win, pack = p.node, p.window, p.device.pack
        x, y, tg = node.x, node.y, params["TG"]
        (fours, share), blocks = _fours(win), ceil_div(y.shape[1], pack)
        d, h, width = win.out
        tiles = ceil_div(width, tg * share) * d * h
        span = find_span(tiles, blocks * x.shape[0], p.device)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {
            "x": x,
            "weights": _depthwise_filters(node.input(1), win, pack),
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


def _depthwise_filters(w: Value, win: Window, pack: int) -> Weight:
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
