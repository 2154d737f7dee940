"""Windows over single channels of channel-packed tensors: the base of pooling, and depthwise convolution."""

from __future__ import annotations

import numpy as np

from ...cost.cost_tables import RegisterTile, Windows
from ...ir.device.device_family import PTX_MMA
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import packed
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_binding, packed_epilogue
from ..filter_window import WindowProblem, find_span
from ..kernel import Bindings, Kernel, Params, register
from ..launch import STORAGE, Args, Array, Defines, Launch, Weight, ceil_div
from .pack_filters import ConvProblem, bias_weight


class ChannelwisePacked(Kernel):
    """Windows over single channels; a work-item owns TW columns of one block."""

    source = "conv/per_channel_window.cl"
    problem = WindowProblem
    space = {"TW": (7, 8, 1, 2, 3, 4, 5, 6, 10, 14)}

    def constants(self, node: Node, pack: int) -> Args:
        """Kernel arguments between input and output."""
        raise NotImplementedError

    def kind(self, node: Node) -> Defines:
        """The defines that select the computation over a window."""
        raise NotImplementedError

    def bindings(self, p: WindowProblem) -> Bindings:
        return (epilogue_binding(p.node, "packed", packed(p.device.pack)),)

    def illegal(self, p: WindowProblem, params: Params) -> str | None:
        registers = 32 if p.block >= 16 else 16
        win, tw = p.window, params["TW"]
        _, run, step = win.runs()
        loaded = ((tw - 1) * win.strides[2] + (run - 1) * win.dilations[2]) // step
        return "the tile exceeds the registers" if tw > 1 and tw + loaded >= registers else None

    def defaults(self, p: WindowProblem) -> Params:
        columns = p.window.out[2]
        widths = [w for w in self.space["TW"] if self.illegal(p, {"TW": w}) is None]
        if not p.device.is_cpu:
            widths = [w for w in widths if w <= 4]
        # The fewest computed columns, counting what each tile costs by itself; of those hardly slower, the
        # first of the space, so that layers share a program.
        fixed = Windows.of(p.device).tile
        costs = {w: ceil_div(columns, w) * (w + fixed) for w in widths}
        return {"TW": next(w for w in widths if costs[w] <= RegisterTile.of(p.device).slack * min(costs.values()))}

    def seconds(self, p: WindowProblem, cost: Cost) -> float:
        channels = p.node.x.shape[1]
        waste = ceil_div(channels, p.device.pack) * p.device.pack / channels
        nbytes = cost.bytes + (waste - 1) * (p.node.x.type.nbytes + p.node.y.type.nbytes)
        return super().seconds(p, Cost(cost.flops * waste, nbytes))

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node = p.node
        x, y, win, tw = node.x, node.y, p.window, params["TW"]
        pack, channels = p.block, y.shape[1]
        blocks = ceil_div(channels, pack)
        _, run, step = win.runs()
        epilogue = packed_epilogue(node, p.device)
        d, h, w = win.out
        tiles = ceil_div(w, tw) * d * h
        span = find_span(tiles, blocks * x.shape[0], p.device)
        args: Args = {"x": x, **self.constants(node, pack), "y": y, "span": span, "batch": x.shape[0], "blocks": blocks}
        args |= {"channels": channels, **win.args(ends=True), **epilogue.args}
        defines = {**win.defines(), **self.kind(node), "PACK": pack, "TW": tw, "RUN": run, "STEP": step}
        defines |= {"MASK": channels % pack != 0, "STORAGE": STORAGE[x.type.storage]}
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        group = (1, 1, 1) if p.device.is_cpu else None
        return [Launch("channelwise_packed", args, grid, group, defines, epilogue.prelude)]


@register
class DepthwisePacked(ChannelwisePacked):
    """Conv with one filter for each channel (group = C = M), NCHWc to NCHWc."""

    rank = -2
    problem = ConvProblem
    half_sums = True
    op = "Conv"

    def refuse(self, p: ConvProblem) -> str | None:
        return p.depthwise_refusal or p.packed_refusal

    def constants(self, node: Node, pack: int) -> Args:
        storage, bias = node.x.type.storage, node.get(2)

        def blocks(data: Array) -> Array:
            taps = data.reshape(data.shape[0], -1)
            padded = np.zeros((ceil_div(taps.shape[0], pack) * pack, taps.shape[1]), storage.np)
            padded[: taps.shape[0]] = taps
            return np.ascontiguousarray(padded.reshape(-1, pack, taps.shape[1]).swapaxes(1, 2))

        filters = Weight(node.input(1), f"depthwise filter o{pack} {storage}", blocks)
        args: Args = {"w": filters}
        return args if bias is None else {**args, "bias": bias_weight(bias, pack, storage)}

    def kind(self, node: Node) -> Defines:
        return {"KIND": 3, "HAS_BIAS": node.get(2) is not None}


_ITEMS = 128
_VECTORS = 44  # most vectors of 4 floats that a work-item holds


@register
class DepthwiseColumns(DepthwisePacked):
    """A work-item owns TH rows of TW columns of one block and loads shared input rows once."""

    source = "conv/depthwise_column_walk.cl"
    space = {"TW": (2, 1, 4), "TH": (4, 1, 2, 7, 14, 28)}

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p):
            return why
        win = p.window
        if win.kernel[0] > 1 or max(p.node.as_(Convolution).dilations) > 1:
            return "windows of several planes, or with gaps, share no rows"
        if win.strides[1] > win.kernel[1] or win.strides[0] > 1:
            return "windows below each other share no rows"
        if self.illegal(p, {"TW": 1, "TH": 1}) is not None:
            return f"the rows of a window of {win.kernel[1]} x {win.kernel[2]} exceed the registers"
        return None

    def illegal(self, p: WindowProblem, params: Params) -> str | None:
        rows = _rows(p, params["TW"])
        filters = 0 if params["TW"] == params["TH"] == 1 else _filters(p)  # no reuse
        return "the tile exceeds the registers" if rows + filters > _most(p) else None

    def defaults(self, p: WindowProblem) -> Params:
        """As many rows as leave enough work-items and divide y well; few columns, for coalesced loads.

        If there are too few work-items in any case, one result each, for the lowest latency.
        """
        _, high, wide = p.window.out
        if self._are_few(p) or self.illegal(p, {"TW": 1, "TH": 2}) is not None:
            return {"TW": 1, "TH": 1}
        apart = p.window.strides[2] > 1
        widths = [w for w in (2, 1) if self.illegal(p, {"TW": w, "TH": 2}) is None and not (w > 1 and apart)]
        tw = min(widths, key=lambda w: ceil_div(wide, w) * (w + Windows.of(p.device).tile))
        for th in (14, 7, 4) if apart else (7, 4):
            if ceil_div(high, th) * th <= high + th // 4 and self._items(p, tw, th) >= self._wanted(p):
                return {"TW": tw, "TH": th}
        return {"TW": tw, "TH": 2}

    def seconds(self, p: WindowProblem, cost: Cost) -> float:
        """A share of the time of kernels that reload rows for each window.

        The share applies to halves (floats were not measured) and to launches with enough work-items to share rows.
        """
        launch_s = p.device.launch_s
        shares = self._are_few(p) or self.defaults(p) != {"TW": 1, "TH": 1}
        pays = shares and p.node.y.type.storage is DType.FLOAT16 and not p.device.is_cpu
        return (super().seconds(p, cost) - launch_s) * (Windows.of(p.device).walk if pays else 2.0) + launch_s

    def _are_few(self, p: WindowProblem) -> bool:
        """Whether there are too few work-items even with one result each."""
        return self._items(p, 1, 1) <= self._wanted(p)

    def _items(self, p: WindowProblem, tw: int, th: int) -> int:
        _, high, wide = p.window.out
        items: int = ceil_div(p.node.y.shape[1], p.block) * p.node.y.shape[0] * ceil_div(high, th) * ceil_div(wide, tw)
        return items

    def _wanted(self, p: WindowProblem) -> float:
        return p.device.compute_units * Windows.of(p.device).walkers

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node, win = p.node, p.window
        pack, channels = p.block, node.y.shape[1]
        blocks, (_, high, wide) = ceil_div(channels, pack), win.out
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": node.x, **self.constants(node, pack), "y": node.y, "batch": node.x.shape[0]}
        args |= {"blocks": blocks, "channels": channels}
        args |= {name: v for name, v in win.args().items() if not name.endswith("d")}
        args |= epilogue.args
        defines = {**win.defines(), **self.kind(node), "PACK": pack, **params}
        defines |= {"MASK": channels % pack != 0, "STORAGE": STORAGE[node.x.type.storage]}
        held = _rows(p, params["TW"]) + _filters(p) <= _most(p)
        defines |= {"HELD": held, "INLINE_PTX": PTX_MMA in p.device.quirks}
        grid = (ceil_div(wide, params["TW"]) * ceil_div(high, params["TH"]), blocks, node.x.shape[0])
        return [Launch("depthwise_walk", args, grid, self._group(grid[0], p), defines, epilogue.prelude)]

    @staticmethod
    def _group(columns: int, p: WindowProblem) -> tuple[int, int, int] | None:
        """Work-group size: whole waves for linked launches, which start before the preceding launch ends."""
        wave = p.device.wave_size
        return (min(ceil_div(columns, wave) * wave, _ITEMS), 1, 1) if p.device.links_launches else None


def _rows(p: WindowProblem, wide: int) -> int:
    """Vectors of a window's rows for `wide` results, and of their accumulators."""
    _, kh, kw = p.window.kernel
    return int(kh * ((wide - 1) * p.window.strides[2] + kw) + wide)


def _filters(p: WindowProblem) -> int:
    """Vectors of a filter."""
    return int(p.window.kernel[1] * p.window.kernel[2])


def _most(p: WindowProblem) -> float:
    """The most vectors that fit the registers."""
    return 4 * _VECTORS / max(p.block, 4)
