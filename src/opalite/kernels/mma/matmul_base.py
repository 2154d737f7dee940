"""Base of matrix products of halves with a constant right side on matrix units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.constants.lazy_array import LazyArray, page_empty, read_slices
from ...ir.graph import Value
from ...ops.operator import Cost
from ..kernel import Kernel
from ..launch import Array, Weight, ceil_div
from ..matmul.matmul_problem import MatmulProblem, MatmulSizes
from ..weight_packing import one_matrix
from .mma_cost import mma_seconds
from .mma_tile import mma_refusal, to_half_quads


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
        return mma_refusal(p.node, p.device) or p.refusal()

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
            packed = pack(to_half_quads(found, p.trans_b))
            first, last = part.start // unit, ceil_div(part.stop, unit)
            if p.trans_b:
                out[first:last] = packed
            else:
                out[:, first * form.steps : last * form.steps] = packed
        return out

    name = f"{form.name} {'nk' if p.trans_b else 'kn'} of {form.columns} x {form.terms}"
    return Weight(b, name, fn, by_slices=True, packed_type=(np.dtype(np.float16), shape))
