"""Depthwise convolution on channel-packed tensors for GPUs: work-items slide down columns and reuse rows."""

from __future__ import annotations

from ...cost.cost_tables import Windows
from ...ir.device.device_family import PTX_MMA
from ...ir.dtype import DType
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import packed_epilogue
from ..filter_window import WindowProblem
from ..kernel import Params, register
from ..launch import STORAGE, Args, Launch, ceil_div
from .depthwise_packed import DepthwisePacked
from .pack_filters import ConvProblem

_ITEMS = 128
_VECTORS = 44  # most vectors of 4 floats that a work-item holds


@register
class DepthwiseColumns(DepthwisePacked):
    """A work-item owns TH rows of TW columns of one block and loads shared input rows once."""

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
