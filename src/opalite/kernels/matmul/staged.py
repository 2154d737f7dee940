"""Matrix products of halves with a constant right side on matrix units, from stages in local memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ..base import Arg, Array, Launch, Params, Space, Weight, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..mma.cost import FEWEST_POSITIONS
from ..mma.product import MmaProduct, columns_of
from ..mma.stages import SLAB, SPACE, find_tile, legal_tiles, pack_stages, tile_defines, tile_grid, tile_illegal
from ..registry import register
from .flat import common_defines
from .problem import problem_of


@register
class MatmulStaged(MmaProduct):
    """Both sides through local memory."""

    source = "matmul/staged.cl"
    space: ClassVar[Space] = SPACE
    staged = True
    further_defines: ClassVar[Mapping[str, Any]] = {}

    def further_args(self, node: Node) -> tuple[Arg, ...]:
        """What a kernel that does more takes behind the sizes."""
        return ()

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        p = problem_of(node)
        if p.k % 8 or p.n % 4:
            return f"{p.k} terms are no multiple of 8 or {p.n} columns none of 4"
        if p.m < FEWEST_POSITIONS:
            return f"{p.m} rows would leave most of a stage empty"
        if next(legal_tiles(device), None) is None:
            return f"no stages fit the {device.local_mem} bytes of local memory"
        return super().refuse(node, device)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        return tile_illegal(params, device)

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        p = problem_of(node)
        return find_tile(p.m, p.n, p.k // 4, device, paired=True)

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        p = problem_of(node)
        epilogue = rows_epilogue(node, device, aligned=True)
        slabs = params["SL"]

        def pack(data: Array) -> Array:
            rows = np.pad(columns_of(data, p), ((0, 0), (0, -p.k % (4 * SLAB))))
            quads = rows.reshape(p.n, -1, SLAB // 2, 2, 4)
            # A lane reads two neighbouring quads at once: even ones are the first step's, odd ones the second's.
            return pack_stages(quads.swapaxes(2, 3).reshape(p.n, -1, 4), slabs)

        weights = Weight(node.input(1), f"stages {'nk' if p.trans_b else 'kn'} of {slabs}", pack)
        grid, group = tile_grid(params, p.m, p.n)
        turns = ceil_div(p.k, 4 * SLAB * slabs)
        sizes = (p.m, p.n, p.k, ceil_div(p.n, 16), turns * 2 * slabs, turns)
        args = (node.x, weights, node.y, *sizes, *self.further_args(node), *epilogue.args)
        defines = common_defines(node, p, 4) | tile_defines(params) | dict(self.further_defines)
        return [Launch("matmul_staged", args, grid, group, defines, epilogue.prelude)]
