"""MatMul on GPUs where one side has few rows: bound by reading b, which work-groups share out along k."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ops.base import Cost
from ..base import Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..registry import register
from .flat import common_defines, common_refusal
from .problem import MatmulProblem

MOST_ROWS = 32


@register
class MatmulSkinny(Kernel):
    """MR rows by TX (b by rows) or TY (b transposed) columns for each work-group; TX and TY are powers of two."""

    half_sums = True
    op = "MatMul"
    problem = MatmulProblem
    source = "matmul/skinny.cl"
    space: ClassVar[Space] = {"TX": (32, 16, 64), "TY": (8, 16, 4), "MR": (1, 2, 4, 8)}

    def refuse(self, p: MatmulProblem) -> str | None:
        rows = p.sizes.m
        if rows > MOST_ROWS:
            return f"a has {rows} rows; this kernel is for at most {MOST_ROWS}"
        if min(p.device.max_work_group_size, *p.device.max_work_item_sizes[:2]) < 64:
            return "the device's work-groups are smaller than 64 work-items"
        return common_refusal(p.node, p.device)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        tx, ty = params["TX"], params["TY"]
        if tx * ty > p.device.max_work_group_size or tx > p.device.max_work_item_sizes[0]:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if params["MR"] * (tx + 1) * (ty + 1) * max(4, p.node.y.type.storage.size) * 2 > p.device.local_mem:
            return f"the sums do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: MatmulProblem) -> dict[str, Any]:
        rows = p.sizes.m
        wanted = min(8, 1 << max(0, rows - 1).bit_length())
        legal = list(self.points(p))
        return next((point for point in legal if point["MR"] == wanted), legal[0])

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        seconds = super().seconds(p, cost)
        return seconds * 20 if p.device.is_cpu else seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node = p.node
        s = p.sizes
        tx, ty = params["TX"], params["TY"]
        epilogue = rows_epilogue(node, p.device)
        groups = ceil_div(s.n, ty if s.trans_b else tx)
        return [
            Launch(
                "matmul_skinny",
                {"a": node.x, "b": node.input(1), "y": node.y, **s.args(), **epilogue.args},
                (groups * tx, ty, ceil_div(s.m, params["MR"]) * s.batches),
                (tx, ty, 1),
                common_defines(node, s, 1) | {"TRANS_B": s.trans_b, **params},
                epilogue.prelude,
            )
        ]
