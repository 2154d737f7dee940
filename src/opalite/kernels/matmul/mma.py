"""Matrix products of halves with a constant right side on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ..base import Array, Launch, Params, Space, Weight, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..mma.product import MmaProduct, columns_of
from ..mma.tiles import QUADS, SPACE, find_tile, pack_weights, tile_defines, tile_grid, tile_illegal
from ..registry import register
from .flat import common_defines
from .problem import problem_of


@register
class MatmulMma(MmaProduct):
    """Operands straight into registers; few tiles share out their steps over warps."""

    source = "matmul/mma.cl"
    space: ClassVar[Space] = SPACE
    staged = False

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        p = problem_of(node)
        if p.k % 4 or p.n % 4:
            return f"{p.k} terms and {p.n} columns are not both multiples of 4"
        return super().refuse(node, device)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        return tile_illegal(params, device)

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        p = problem_of(node)
        return find_tile(p.m, p.n, ceil_div(p.k, 4 * QUADS), device)

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        p = problem_of(node)
        epilogue = rows_epilogue(node, device, aligned=True)

        def pack(data: Array) -> Array:
            return pack_weights(columns_of(data, p).reshape(p.n, p.k // 4, 4))

        weights = Weight(node.input(1), f"mma {'nk' if p.trans_b else 'kn'}", pack)
        grid, group = tile_grid(params, p.m, p.n)
        sizes = (p.m, p.n, ceil_div(p.n, 16), ceil_div(p.k, 4 * QUADS), p.k // 4)
        args = (node.x, weights, node.y, *sizes, *epilogue.args)
        defines = common_defines(node, p, 4) | tile_defines(params)
        return [Launch("matmul_mma", args, grid, group, defines, epilogue.prelude)]
