"""What matrix products of halves with a constant right side on matrix units share."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.base import Cost
from ..base import Array, Kernel, ceil_div
from ..matmul.flat import common_refusal
from ..matmul.problem import Problem, problem_of
from .cost import mma_seconds
from .tiles import mma_refusal


class MmaProduct(Kernel):
    """Row-major a by packed b. staged: by way of local memory."""

    op = "MatMul"
    staged: ClassVar[bool]

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        p = problem_of(node)
        if p.trans_a or p.batches != 1:
            return "the left side must be one matrix, stored by rows"
        return mma_refusal(node, device) or common_refusal(node, device)

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        p = problem_of(node)
        return mma_seconds(p.m, p.n, ceil_div(p.k, 4), device, cost, staged=self.staged, paired=True)


def columns_of(data: Array, p: Problem) -> Array:
    """The columns of b, [N, K]."""
    matrix = data.reshape(data.shape[-2:])
    return np.ascontiguousarray(matrix if p.trans_b else matrix.T)
