"""Matrix products of halves with a fused row normalisation on matrix units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...cost.cost_tables import MatrixUnits, WarpgroupTile
from ...ir.graph import Node
from ...ir.map_record import map_record
from ...ir.symbols import hint_of
from ...ops.operator import Cost
from ...ops.row_norm_matmul import NormalizedMatMul
from ..kernel import Params, register
from ..launch import Args, Array, Defines, Weight, ceil_div
from ..mma.mma_cost import warpgroup_share
from ..mma.staged_tile import find_tile, legal_tiles, stage_bytes, tile_cycles, tile_size
from ..mma.wgmma_tile import WgmmaProblem
from .matmul_mma import MatmulMmaStaged
from .matmul_problem import MatmulProblem, sizes_of
from .matmul_wgmma import MatmulWgmma


@register
class NormMatmulMmaStaged(MatmulMmaStaged):
    """MatmulMmaStaged that accumulates row sums and sums of squares, and normalises the accumulators."""

    op = "NormalizedMatMul"
    further_defines: Defines = {"NORMALIZED": 1}

    def refuse(self, p: MatmulProblem) -> str | None:
        why = super().refuse(p)
        if why is None and not any(_fits(point) for point in legal_tiles(p.device)):
            return f"no stages with their rows' statistics fit the {p.device.local_mem} bytes of local memory"
        return why

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if not _fits(params):
            return "the statistics of rows do not fit the stages' memory with the partial sums"
        return super().illegal(p, params)

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        tiles = (t for t in legal_tiles(p.device) if _fits(t))
        return min(tiles, key=lambda t: tile_cycles(t, s.m, s.n, s.k // 4, p.device, paired=True))

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        """The product's time plus that of reading all rows in every column of tiles."""
        s = p.sizes
        columns = tile_size(find_tile(s.m, s.n, s.k // 4, p.device, paired=True))[1]
        reads = s.m * s.k * ceil_div(s.n, columns)
        return super().seconds(p, cost) + reads * MatrixUnits.of(p.device).normalize / p.device.peak_flops

    def extra_args(self, node: Node) -> Args:
        return _norm_args(node)


@register
class NormMatmulWgmma(MatmulWgmma):
    """MatmulWgmma that accumulates row sums and sums of squares, and normalises the accumulators."""

    op = "NormalizedMatMul"
    further_defines: Defines = {"NORMALIZED": 1}

    def refuse(self, p: MatmulProblem) -> str | None:
        if why := super().refuse(p):
            return why
        share = warpgroup_share(map_record(self.work(p), hint_of), p.device, paired=True)  # pays at the current sizes
        if share > WarpgroupTile.of(p.device).ahead:
            return (
                f"products by other matrix units, which normalise rows in passing, take {1 / share:.1f} times as long"
            )
        return None

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if params["PARTS"] > 1:
            return "who sees a part of a row does not know its statistics"
        return super().illegal(p, params)

    def work(self, p: MatmulProblem) -> WgmmaProblem:
        return replace(super().work(p), finds_statistics=True)

    def extra_args(self, node: Node) -> Args:
        return _norm_args(node)


def _norm_args(node: Node) -> Args:
    """Additional arguments of the normalisation."""
    p = sizes_of(node)

    def sums(data: Array) -> Array:
        matrix = data.reshape(data.shape[-2:]).astype(np.float16).astype(np.float32)
        return np.ascontiguousarray(matrix.sum(1 if p.trans_b else 0))

    key = f"sums of halves {'nk' if p.trans_b else 'kn'}"
    return {"column_sums": Weight(node.input(1), key, sums), "epsilon": float(node.as_(NormalizedMatMul).epsilon)}


def _fits(params: Params) -> bool:
    """Whether the row statistics fit the stages' memory, together with partial sums."""
    rows, columns = tile_size(params)
    parts = 8 * rows * params["NW"] * params["SPLIT"]
    sums = 4 * rows * columns * params["SPLIT"] if params["SPLIT"] > 1 else 0
    return max(int(parts), int(sums)) + 8 * rows <= stage_bytes(params)
