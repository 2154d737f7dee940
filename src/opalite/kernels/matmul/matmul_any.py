"""MatMul for every element type, size and stride."""

from __future__ import annotations

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.symbols import symbolic_max
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, rows_epilogue
from ..kernel import Kernel, Params, register
from ..launch import STORAGE, Defines, Launch, ceil_div
from .matmul_problem import MatmulProblem, MatmulSizes


def common_refusal(node: Node, device: DeviceInfo) -> str | None:
    """The reason why no matrix product kernel takes the node (epilogue, index overflow), or None."""
    largest = symbolic_max(t.count for t in (node.x.type, node.input(1).type, node.y.type))
    if largest >= 1 << 31:
        return f"a tensor of {largest!r} elements is beyond 32-bit indices"
    return epilogue_refusal(node, "rows")


def common_defines(node: Node, problem: MatmulSizes, pack: int) -> Defines:
    """Defines that all matrix product kernels share."""
    return {"STORAGE": STORAGE[node.y.type.storage], "PACK": pack, "TRANS_A": problem.trans_a}


def fallback_params(device: DeviceInfo) -> Params:
    """Parameters of kernels whose work-items take PACK neighbours; on a GPU, PACK is 1 for coalescing."""
    return {"PACK": device.pack if device.is_cpu else 1}


@register
class MatmulAny(Kernel):
    """One work-item per vector of a row; reuse only through caches."""

    half_sums = True
    op = "MatMul"
    problem = MatmulProblem
    space = {"PACK": (1, 2, 4, 8, 16)}

    def refuse(self, p: MatmulProblem) -> str | None:
        return common_refusal(p.node, p.device)

    def defaults(self, p: MatmulProblem) -> Params:
        return fallback_params(p.device)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        # GPU work-items that each own a whole sum wait for memory most of the time. A CPU strides down columns, a
        # page or more at each step: half to a quarter of the bandwidth was measured.
        if p.device.is_cpu:
            return super().seconds(p, Cost(cost.flops, 2 * cost.bytes))
        return super().seconds(p, cost) * 20

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        epilogue = rows_epilogue(node, p.device)
        return [
            Launch(
                "matmul_flat",
                {"a": node.x, "b": node.input(1), "y": node.y, **s.args(), **epilogue.args},
                (ceil_div(s.n, params["PACK"]), s.m, s.batches),
                defines=common_defines(node, s, params["PACK"]) | {"TRANS_B": s.trans_b},
                prelude=epilogue.prelude,
            )
        ]
