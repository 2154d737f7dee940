"""What matrix products of halves with a constant right side on matrix units share."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...ops.base import Cost
from ..base import Array, Kernel, ceil_div
from ..matmul.flat import common_refusal
from ..matmul.problem import MatmulProblem, MatmulSizes
from .cost import mma_seconds
from .tiles import mma_refusal


class MmaProduct(Kernel):
    """Row-major a by packed b. staged: by way of local memory."""

    op = "MatMul"
    problem = MatmulProblem
    staged: ClassVar[bool]

    def refuse(self, p: MatmulProblem) -> str | None:
        s = p.sizes
        if s.trans_a or s.batches != 1:
            return "the left side must be one matrix, stored by rows"
        return mma_refusal(p.node, p.device) or common_refusal(p.node, p.device)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        s = p.sizes
        return mma_seconds(s.m, s.n, ceil_div(s.k, 4), p.device, cost, staged=self.staged, paired=True)


def columns_of(data: Array, p: MatmulSizes) -> Array:
    """The columns of b, [N, K]."""
    matrix = data.reshape(data.shape[-2:])
    return np.ascontiguousarray(matrix if p.trans_b else matrix.T)
