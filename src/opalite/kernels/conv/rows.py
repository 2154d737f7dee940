"""Row-major convolution with vectors along the rows: for CPUs, where channels are few or weights not constant."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...cost.tables import RowTile
from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.base import Cost
from ...ops.conv import Convolution
from ..base import Arg, Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..registry import register
from ..sources import STORAGE
from ..window import Window, empty_refusal, find_span, window_refusal, window_seconds
from .tiles import tile_refusal

MAX_STAGED = 1024  # columns that a filter may reach beyond a tile before each of its columns is staged by itself


@register
class ConvRows(Kernel):
    """NCHW to NCHW; a work-item computes TV vectors of columns of TM output channels."""

    half_sums = True
    op = "Conv"
    source = "conv/rows.cl"
    space: ClassVar[Space] = {"TV": (2, 1, 3, 4), "TM": (4, 1, 2, 3, 6, 8)}

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if not device.is_cpu:
            return "a GPU's work-items are lanes of vectors already"
        return window_refusal(node) or empty_refusal(node) or epilogue_refusal(node, "packed")

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        return tile_refusal(params["TM"], params["TV"], device.pack, device)

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        return min(self.points(node, device), key=lambda p: self._cost(node, device, p["TV"], p["TM"]))

    def _cost(self, node: Node, device: DeviceInfo, tv: int, tm: int) -> float:
        """Time, in multiply-adds of vectors, of one filter element over all tiles."""
        columns, rows = _lines(node)
        filters = node.y.shape[1] // node.as_(Convolution).group
        win, c = Window.of(node), RowTile.of(device)
        turn = tv * tm + tv + tm + min(c.turn, c.run / win.kernel[2])
        if win.strides[2] > 2:
            turn += tv * device.pack  # lanes are gathered one by one
        return ceil_div(columns, tv * device.pack) * rows * ceil_div(filters, tm) * turn

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        columns, rows = _lines(node)
        filters = node.y.shape[1] // node.as_(Convolution).group
        least = min(self._cost(node, device, p["TV"], p["TM"]) for p in self.points(node, device))
        waste = least * device.pack / (columns * rows * filters)
        return window_seconds(cost.flops * waste, cost.bytes, self.share(device), device)

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        x, bias, y, win = node.x, node.get(2), node.y, Window.of(node)
        groups, tv, tm = node.as_(Convolution).group, params["TV"], params["TM"]
        cg, mg = x.shape[1] // groups, y.shape[1] // groups
        columns, rows = _lines(node)
        sizes = (1, 1, columns) * 2 + (0, 0, 0) if win.is_pointwise else (*win.size, *win.out, *win.begin)
        tiles, blocks = ceil_div(columns, tv * device.pack) * rows, groups * ceil_div(mg, tm)
        span = find_span(tiles, blocks * x.shape[0], device)
        epilogue = packed_epilogue(node, device)
        args: tuple[Arg, ...] = (x, node.input(1), *(() if bias is None else (bias,)), y, span, cg, mg, groups)
        reach = (win.kernel[2] - 1) * win.dilations[2]
        defines = win.defines() | {
            "PACK": device.pack,
            "TV": tv,
            "TM": tm,
            "RUN": win.kernel[2] if reach <= MAX_STAGED else 1,
            "HAS_BIAS": bias is not None,
            "STORAGE": STORAGE[x.type.storage],
        }
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        return [Launch("conv_rows", (*args, *sizes, *epilogue.args), grid, (1, 1, 1), defines, epilogue.prelude)]


def _lines(node: Node) -> tuple[int, int]:
    """(columns of a row, rows of an output channel); with pointwise filters all positions are one row."""
    win = Window.of(node)
    d, h, w = win.out
    return (math.prod(win.out), 1) if win.is_pointwise else (w, d * h)
