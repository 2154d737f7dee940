"""Matrix products of halves with a constant right side on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import Args, Launch, Weight, ceil_div
from ..mma.matmul_base import MmaProduct, WeightOrder, packed_weight
from ..mma.mma_tile import COLUMNS, QUADS, SPACE, WAVE, find_tile, pack_weights, tile_defines, tile_grid, tile_illegal
from .matmul_problem import MatmulProblem


def packed_weights(p: MatmulProblem) -> Weight:
    """The constant right side in tile order."""
    return packed_weight(p.node.input(1), p.sizes, WeightOrder("mma", COLUMNS, 4 * QUADS, 1, (WAVE, 8)), pack_weights)


@register
class MatmulMma(MmaProduct):
    """Operands are loaded straight into registers; with few tiles, warps split the terms."""

    space = SPACE
    staged = False

    def refuse(self, p: MatmulProblem) -> str | None:
        s = p.sizes
        if s.k % 4 or s.n % 4:
            return f"{s.k} terms and {s.n} columns are not both multiples of 4"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return tile_illegal(params, p.device)

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        return find_tile(s.m, s.n, ceil_div(s.k, 4 * QUADS), p.device)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        epilogue = rows_epilogue(node, p.device, aligned=True)
        weights = packed_weights(p)
        grid, group = tile_grid(params, s.m, s.n)
        args: Args = {"a": node.x, "weights": weights, "y": node.y, "rows": s.m, "columns": s.n}
        args |= {"tiles": ceil_div(s.n, 16), "steps": ceil_div(s.k, 4 * QUADS), "quads": s.k // 4, **epilogue.args}
        defines = p.defines(4) | tile_defines(params)
        return [Launch("matmul_mma", args, grid, group, defines, epilogue.prelude)]
