"""MatMul for every element type, size and stride."""

from __future__ import annotations

from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import Launch, ceil_div
from .matmul_problem import MatmulKernel, MatmulProblem


@register
class MatmulAny(MatmulKernel):
    """One work-item per vector of a row; reuse only through caches."""

    rank = -1
    space = {"PACK": (1, 2, 4, 8, 16)}

    def defaults(self, p: MatmulProblem) -> Params:
        return {"PACK": p.device.pack if p.device.is_cpu else 1}  # 1 on a GPU, for coalescing

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        # GPU work-items that each own a whole sum wait for memory most of the time. A CPU strides down columns, a
        # page or more at each step: half to a quarter of the bandwidth was measured.
        if p.device.is_cpu:
            return super().seconds(p, Cost(cost.flops, 2 * cost.bytes))
        return super().seconds(p, cost) * 20

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, epilogue = p.node, p.sizes, rows_epilogue(p.node, p.device)
        args = {"a": node.x, "b": node.input(1), "y": node.y, **s.args(), **epilogue.args}
        defines = p.defines(params["PACK"]) | {"TRANS_B": s.trans_b}
        grid = (ceil_div(s.n, params["PACK"]), s.m, s.batches)
        return [Launch("matmul_flat", args, grid, None, defines, epilogue.prelude)]
