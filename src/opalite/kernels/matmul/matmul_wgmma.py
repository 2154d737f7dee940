"""Matrix products of halves with a constant right side by Hopper's wgmma instructions."""

from __future__ import annotations

from ...ir.graph import Node
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..fma.tile_parameters import full_operands
from ..kernel import Params, register
from ..launch import Args, Array, Defines, Launch, Scratch, ceil_div
from ..mma import wgmma_tile
from ..mma.mma_cost import FEWEST_POSITIONS, warpgroup_seconds
from ..mma.wgmma_tile import WgmmaProblem
from .matmul_mma import MmaProduct, WeightOrder, packed_weight
from .matmul_problem import MatmulProblem


@register
class MatmulWgmma(MmaProduct):
    """Rows go to registers, weights through local memory."""

    source = "matmul/matmul_wgmma.cl"
    space = wgmma_tile.SPACE
    further_defines: Defines = {}

    def extra_args(self, node: Node) -> Args:
        """Additional arguments of subclasses, after the sizes."""
        return {}

    def work(self, p: MatmulProblem) -> WgmmaProblem:
        """The product in the cost model's terms."""
        s = p.sizes
        return WgmmaProblem(s.m, s.n, ceil_div(s.k, 4), pieces=False, operands=full_operands(p.node))

    def refuse(self, p: MatmulProblem) -> str | None:
        s = p.sizes
        if why := wgmma_tile.warpgroup_refusal(p.device):
            return why
        if s.k % 8 or s.n % 4:
            return f"{s.k} terms are not a multiple of 8 or {s.n} columns not one of 4"
        if s.m < FEWEST_POSITIONS:
            return f"{s.m} rows would leave most of a tile empty"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return wgmma_tile.tile_illegal(params)

    def defaults(self, p: MatmulProblem) -> Params:
        return wgmma_tile.find_tile(self.work(p), p.device)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        return warpgroup_seconds(self.work(p), p.device, cost, paired=True)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        epilogue = rows_epilogue(node, p.device, aligned=True)
        rows, columns = wgmma_tile.tile_size(params)
        chunks = ceil_div(s.k, 4 * wgmma_tile.CHUNK)

        def pack(quads: Array) -> Array:
            return wgmma_tile.pack_chunks(quads, columns, paired=True)  # a work-item has two adjacent quads

        form = WeightOrder("warpgroup", columns, 4 * wgmma_tile.CHUNK, 1, (2, columns // 8, 2, 8, 8))
        weights = packed_weight(node.input(1), s, form, pack)
        high, wide = ceil_div(s.m, rows), ceil_div(s.n, columns)
        grid, group = wgmma_tile.tile_grid(params, high, wide)
        args: Args = {"a": node.x, "weights": weights, "rows": s.m, "columns": s.n, "k": s.k}
        args |= {"chunks": chunks, "high": high, "wide": wide, **self.extra_args(node)}
        finish: Args = {"y": node.y, **epilogue.args}
        defines = p.defines(4) | wgmma_tile.tile_defines(params, node, finds_statistics=self.work(p).finds_statistics)
        defines |= self.further_defines
        if (parts := params["PARTS"]) == 1:
            return [Launch("matmul_warpgroup", args | finish, grid, group, defines, epilogue.prelude)]
        sums = {"parts": Scratch("parts", parts * s.m * s.n * 4)}
        finish |= {"rows": s.m, "N": s.n}
        return [
            Launch("matmul_warpgroup", args | sums, grid, group, defines, epilogue.prelude),
            Launch("matmul_parts", finish | sums, (s.n // 4, s.m), None, defines, epilogue.prelude),
        ]
