"""Row-major convolution vectorised along rows: for CPUs, with few channels or variable weights."""

from __future__ import annotations

import math
from dataclasses import replace

from ...cost.cost_tables import RowTile
from ...ir.graph import Node
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..filter_window import Window, empty_refusal, find_span, window_refusal, window_seconds
from ..kernel import Kernel, Params, register
from ..launch import STORAGE, Args, Launch, ceil_div
from .pack_filters import ConvProblem
from .register_tiles import tile_refusal

MAX_STAGED = 1024  # columns by which a filter may exceed a tile before each of its columns is staged separately


@register
class ConvRowMajorVectors(Kernel):
    """NCHW to NCHW; a work-item computes TV vectors of columns of TM output channels."""

    problem = ConvProblem
    half_sums = True
    op = "Conv"
    space = {"TV": (2, 1, 3, 4), "TM": (4, 1, 2, 3, 6, 8)}

    def refuse(self, p: ConvProblem) -> str | None:
        if not p.device.is_cpu:
            return "a GPU's work-items are lanes of vectors already"
        return window_refusal(p.node) or empty_refusal(p.node) or epilogue_refusal(p.node, "packed")

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return tile_refusal(params["TM"], params["TV"], p.device.pack, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        tv, tm = self._best(p)[1:]
        return {"TV": tv, "TM": tm}

    def _best(self, p: ConvProblem) -> tuple[float, int, int]:
        """(estimated multiply-adds per filter element, TV, TM) of the cheapest tile."""
        win, pack, c = p.window, p.device.pack, RowTile.of(p.device)
        columns, rows = _lines(win)
        filters = _filters(p.node)
        staging = min(c.turn, c.run / win.kernel[2])
        gathering = pack if win.strides[2] > 2 else 0  # strided lanes are loaded one by one
        along = [(tv, ceil_div(columns, tv * pack) * rows) for tv in self.space["TV"]]
        across = [(tm, ceil_div(filters, tm)) for tm in self.space["TM"]]
        best: tuple[float, int, int] | None = None
        for tv, tiles in along:
            for tm, blocks in across:
                time = tiles * blocks * (tv * tm + tv + tm + staging + tv * gathering)
                if (best is None or time < best[0]) and tile_refusal(tm, tv, pack, p.device) is None:
                    best = time, tv, tm
        assert best is not None, "a tile of one vector is always legal"
        return best

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        columns, rows = _lines(p.window)
        waste = self._best(p)[0] * p.device.pack / (columns * rows * _filters(p.node))
        return window_seconds(cost.flops * waste, cost.bytes, self.share(p.device), p.device)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y, win = node.x, node.get(2), node.y, p.window
        groups, tv, tm = node.as_(Convolution).group, params["TV"], params["TM"]
        cg, mg = x.shape[1] // groups, y.shape[1] // groups
        columns, rows = _lines(win)
        flat = replace(win, size=(1, 1, columns), out=(1, 1, columns)) if win.is_pointwise else win
        tiles, blocks = ceil_div(columns, tv * p.device.pack) * rows, groups * ceil_div(mg, tm)
        span = find_span(tiles, blocks * x.shape[0], p.device)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "w": node.input(1), "y": y, "span": span, "cg": cg, "mg": mg, "groups": groups}
        args["batch"] = x.shape[0]
        args |= ({} if bias is None else {"bias": bias}) | {**flat.args(), **epilogue.args}
        reach = (win.kernel[2] - 1) * win.dilations[2]
        defines = win.defines() | {
            "PACK": p.device.pack,
            "TV": tv,
            "TM": tm,
            "RUN": win.kernel[2] if reach <= MAX_STAGED else 1,
            "HAS_BIAS": bias is not None,
            "STORAGE": STORAGE[x.type.storage],
        }
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        return [Launch("conv_rows", args, grid, (1, 1, 1), defines, epilogue.prelude)]


def _filters(node: Node) -> int:
    """Output channels per group."""
    return node.y.shape[1] // node.as_(Convolution).group


def _lines(win: Window) -> tuple[int, int]:
    """(columns per row, rows per output channel); pointwise filters treat all positions as one row."""
    d, h, w = win.out
    return (math.prod(win.out), 1) if win.is_pointwise else (w, d * h)
