"""MatMul on GPUs: tiles of both matrices in local memory."""

from __future__ import annotations

from ...cost.cost_tables import LocalMemory
from ...ir.symbols import may_have_remainder
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..fma.tile_parameters import (
    SPACE,
    GemmSize,
    find_tile,
    full_operands,
    group_size,
    legal_tiles,
    slab,
    tile_defines,
    tile_illegal,
    tile_size,
)
from ..kernel import Params, register
from ..launch import Args, Launch, Scratch, ceil_div
from ..weight_packing import columns_weight
from .matmul_problem import MatmulKernel, MatmulProblem

VECTOR = 4


@register
class MatmulLocalTile(MatmulKernel):
    """Register tiles of any element type; a constant b is in panels, from which tiles are loaded directly."""

    rank = 3
    space = SPACE

    def refuse(self, p: MatmulProblem) -> str | None:
        if next(legal_tiles(p.device, _element(p)), None) is None:
            return "the device's work-groups are smaller than 64 work-items, or have no local memory for tiles"
        return p.refusal()

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if params["PARTS"] > 1 and may_have_remainder(p.sizes.n, VECTOR):
            return "sums of parts are added up by vectors of whole rows"
        return tile_illegal(params, p.device, _element(p))

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        sums = GemmSize(s.m, s.n, s.k, s.batches, full_operands(p.node))
        return find_tile(sums, p.device, _element(p), whole=may_have_remainder(s.n, VECTOR))

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        seconds = super().seconds(p, cost)
        # A CPU runs work-items sequentially and its local memory is ordinary memory: accumulators leave registers.
        if p.device.is_cpu:
            return seconds * 20
        return seconds if p.device.local_mem_dedicated else seconds * LocalMemory.of(p.device).through_memory

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, b = p.node, p.sizes, p.node.input(1)
        panels = p.has_panels
        inner = (s.m if s.trans_a else s.k, s.n, *(() if panels else (s.k if s.trans_b else s.n,)))
        aligned = not any(may_have_remainder(size, VECTOR) for size in inner)
        epilogue = rows_epilogue(node, p.device, aligned=aligned)
        right = columns_weight(b, s.trans_b, tile_size(params)[1], slab(params)) if panels else b
        (rows, columns), group = tile_size(params), group_size(params)
        defines = p.defines(VECTOR) | {"TRANS_B": s.trans_b, **tile_defines(params)}
        defines |= {"PANELS": panels, "ALIGNED": aligned}
        parts = params["PARTS"]
        grid = (ceil_div(s.n, columns) * group, ceil_div(s.m, rows), s.batches * parts)
        args: Args = {"a": node.x, "b": right, **s.args()}
        if parts == 1:
            args |= {"y": node.y, **epilogue.args}
            return [Launch("matmul_tile", args, grid, (group, 1, 1), defines, epilogue.prelude)]
        lines = s.batches * s.m
        sums = Scratch("parts", parts * lines * s.n * _element(p))
        last: Args = {"parts": sums, "y": node.y, "rows": lines, "N": s.n, **epilogue.args}
        return [
            Launch("matmul_tile", {**args, "parts": sums}, grid, (group, 1, 1), defines, epilogue.prelude),
            Launch("matmul_parts", last, (s.n // VECTOR, lines), None, defines, epilogue.prelude),
        ]


def _element(p: MatmulProblem) -> int:
    """Bytes of an accumulator."""
    return max(4, p.node.y.type.storage.size)
