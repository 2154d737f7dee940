"""Matrix products of halves with a constant right side on matrix units, operands staged in local memory."""

from __future__ import annotations

from ...ir.graph import Node
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import Args, Array, Defines, Launch, ceil_div
from ..mma.matmul_base import MmaProduct, WeightOrder, packed_weight
from ..mma.mma_cost import FEWEST_POSITIONS
from ..mma.mma_tile import COLUMNS, QUADS, WAVE
from ..mma.staged_tile import SLAB, SPACE, find_tile, legal_tiles, pack_stages, tile_defines, tile_grid, tile_illegal
from .matmul_problem import MatmulProblem


@register
class MatmulMmaStaged(MmaProduct):
    """Both operands go through local memory."""

    space = SPACE
    staged = True
    further_defines: Defines = {}

    def extra_args(self, node: Node) -> Args:
        """Additional arguments of subclasses, after the sizes."""
        return {}

    def refuse(self, p: MatmulProblem) -> str | None:
        s = p.sizes
        if s.k % 8 or s.n % 4:
            return f"{s.k} terms are not a multiple of 8 or {s.n} columns not one of 4"
        if s.m < FEWEST_POSITIONS:
            return f"{s.m} rows would leave most of a stage empty"
        if next(legal_tiles(p.device), None) is None:
            return f"no stages fit the {p.device.local_mem} bytes of local memory"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return tile_illegal(params, p.device)

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        return find_tile(s.m, s.n, s.k // 4, p.device, paired=True)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        epilogue = rows_epilogue(node, p.device, aligned=True)
        slabs = params["SL"]

        def pack(quads: Array) -> Array:
            return pack_stages(quads, slabs, paired=True)  # a lane loads two adjacent quads at once

        form = WeightOrder("stages", COLUMNS, 4 * SLAB * slabs, SLAB // QUADS * slabs, (WAVE, 8))
        weights = packed_weight(node.input(1), s, form, pack)
        grid, group = tile_grid(params, s.m, s.n)
        turns = ceil_div(s.k, 4 * SLAB * slabs)
        args: Args = {"a": node.x, "weights": weights, "y": node.y, "rows": s.m, "columns": s.n, "k": s.k}
        args |= {"tiles": ceil_div(s.n, 16), "steps": turns * 2 * slabs, "turns": turns}
        args |= {**self.extra_args(node), **epilogue.args}
        defines = p.defines(4) | tile_defines(params) | dict(self.further_defines)
        return [Launch("matmul_staged", args, grid, group, defines, epilogue.prelude)]
