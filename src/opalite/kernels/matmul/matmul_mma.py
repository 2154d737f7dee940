"""Matrix products of halves with a constant right side on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.constants.lazy_array import LazyArray, page_empty, read_slices
from ...ir.graph import Node, Value
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..kernel import Kernel, Params, register
from ..launch import Args, Array, Defines, Launch, Weight, ceil_div
from ..mma import mma_tile, staged_tile
from ..mma.mma_cost import FEWEST_POSITIONS, mma_seconds
from ..weight_packing import one_matrix
from .matmul_problem import MatmulProblem, MatmulSizes


@dataclass(frozen=True)
class WeightOrder:
    """Memory order of packed half weights: [tiles of `columns`, `steps` per `terms` terms, *inner]."""

    name: str
    columns: int
    terms: int
    steps: int
    inner: tuple[int, ...]


class MmaProduct(Kernel):
    """Row-major a times packed constant b. staged: operands go through local memory."""

    op = "MatMul"
    problem = MatmulProblem
    staged: bool

    def refuse(self, p: MatmulProblem) -> str | None:
        s = p.sizes
        if s.trans_a or s.batches != 1:
            return "the left side must be one matrix, stored by rows"
        return mma_tile.mma_refusal(p.node, p.device) or p.refusal()

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        s = p.sizes
        return mma_seconds(s.m, s.n, ceil_div(s.k, 4), p.device, cost, staged=self.staged, paired=True)


def packed_weight(b: Value, p: MatmulSizes, form: WeightOrder, pack: Callable[[Array], Array]) -> Weight:
    """The constant right side in the order `form`, packed in slices.

    pack: converts quads of halves [n, k / 4, 4] to that order; zeros fill the padding of n and k.
    """
    shape = (ceil_div(p.n, form.columns), ceil_div(p.k, form.terms) * form.steps, *form.inner)

    def fn(held: Array | LazyArray) -> Array:
        matrix = one_matrix(held)
        out = page_empty(shape, np.float16)
        unit = form.columns if p.trans_b else form.terms
        for part, found in read_slices(matrix, unit):
            packed = pack(mma_tile.to_half_quads(found, p.trans_b))
            first, last = part.start // unit, ceil_div(part.stop, unit)
            if p.trans_b:
                out[first:last] = packed
            else:
                out[:, first * form.steps : last * form.steps] = packed
        return out

    name = f"{form.name} {'nk' if p.trans_b else 'kn'} of {form.columns} x {form.terms}"
    return Weight(b, name, fn, by_slices=True, packed_type=(np.dtype(np.float16), shape))


def packed_weights(p: MatmulProblem) -> Weight:
    """The constant right side in tile order."""
    form = WeightOrder("mma", mma_tile.COLUMNS, 4 * mma_tile.QUADS, 1, (mma_tile.WAVE, 8))
    return packed_weight(p.node.input(1), p.sizes, form, mma_tile.pack_weights)


@register
class MatmulMma(MmaProduct):
    """Operands are loaded straight into registers; with few tiles, warps split the terms."""

    source = "matmul/matmul_mma.cl"
    space = mma_tile.SPACE
    staged = False

    def refuse(self, p: MatmulProblem) -> str | None:
        s = p.sizes
        if s.k % 4 or s.n % 4:
            return f"{s.k} terms and {s.n} columns are not both multiples of 4"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return mma_tile.tile_illegal(params, p.device)

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        return mma_tile.find_tile(s.m, s.n, ceil_div(s.k, 4 * mma_tile.QUADS), p.device)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        epilogue = rows_epilogue(node, p.device, aligned=True)
        weights = packed_weights(p)
        grid, group = mma_tile.tile_grid(params, s.m, s.n)
        args: Args = {"a": node.x, "weights": weights, "y": node.y, "rows": s.m, "columns": s.n}
        args |= {"tiles": ceil_div(s.n, 16), "steps": ceil_div(s.k, 4 * mma_tile.QUADS), "quads": s.k // 4}
        args |= {**epilogue.args}
        defines = p.defines(4) | mma_tile.tile_defines(params)
        return [Launch("matmul_mma", args, grid, group, defines, epilogue.prelude)]


@register
class MatmulMmaStaged(MmaProduct):
    """Both operands go through local memory."""

    source = "matmul/matmul_mma_staged.cl"
    space = staged_tile.SPACE
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
        if next(staged_tile.legal_tiles(p.device), None) is None:
            return f"no stages fit the {p.device.local_mem} bytes of local memory"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        return staged_tile.tile_illegal(params, p.device)

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        return staged_tile.find_tile(s.m, s.n, s.k // 4, p.device, paired=True)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        epilogue = rows_epilogue(node, p.device, aligned=True)
        slabs = params["SL"]

        def pack(quads: Array) -> Array:
            return staged_tile.pack_stages(quads, slabs, paired=True)  # a lane loads two adjacent quads at once

        form = WeightOrder(
            "stages",
            mma_tile.COLUMNS,
            4 * staged_tile.SLAB * slabs,
            staged_tile.SLAB // mma_tile.QUADS * slabs,
            (mma_tile.WAVE, 8),
        )
        weights = packed_weight(node.input(1), s, form, pack)
        grid, group = staged_tile.tile_grid(params, s.m, s.n)
        turns = ceil_div(s.k, 4 * staged_tile.SLAB * slabs)
        args: Args = {"a": node.x, "weights": weights, "y": node.y, "rows": s.m, "columns": s.n, "k": s.k}
        args |= {"tiles": ceil_div(s.n, 16), "steps": turns * 2 * slabs, "turns": turns}
        args |= {**self.extra_args(node), **epilogue.args}
        defines = p.defines(4) | staged_tile.tile_defines(params) | dict(self.further_defines)
        return [Launch("matmul_staged", args, grid, group, defines, epilogue.prelude)]
