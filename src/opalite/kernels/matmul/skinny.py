"""MatMul on GPUs where one side has few rows: bound by reading b, which work-groups share out along k."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.base import Cost
from ..base import Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..registry import register
from .flat import common_defines, common_refusal
from .problem import problem_of

MOST_ROWS = 32


@register
class MatmulSkinny(Kernel):
    """MR rows by TX (b by rows) or TY (b transposed) columns for each work-group; TX and TY are powers of two."""

    half_sums = True
    op = "MatMul"
    source = "matmul/skinny.cl"
    space: ClassVar[Space] = {"TX": (32, 16, 64), "TY": (8, 16, 4), "MR": (1, 2, 4, 8)}

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        rows = problem_of(node).m
        if rows > MOST_ROWS:
            return f"a has {rows} rows; this kernel is for at most {MOST_ROWS}"
        if min(device.max_work_group_size, *device.max_work_item_sizes[:2]) < 64:
            return "the device's work-groups are smaller than 64 work-items"
        return common_refusal(node, device)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        tx, ty = params["TX"], params["TY"]
        if tx * ty > device.max_work_group_size or tx > device.max_work_item_sizes[0]:
            return f"the device runs at most {device.max_work_group_size} work-items in a group"
        if params["MR"] * (tx + 1) * (ty + 1) * max(4, node.y.type.storage.size) * 2 > device.local_mem:
            return f"the sums do not fit the {device.local_mem} bytes of local memory"
        return None

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        rows = problem_of(node).m
        wanted = min(8, 1 << max(0, rows - 1).bit_length())
        legal = list(self.points(node, device))
        return next((p for p in legal if p["MR"] == wanted), legal[0])

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        seconds = super().seconds(node, device, cost)
        return seconds * 20 if device.is_cpu else seconds

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        p = problem_of(node)
        tx, ty = params["TX"], params["TY"]
        epilogue = rows_epilogue(node, device)
        sizes = (max(len(p.batch), 1), p.batches, p.m, p.n, p.k, p.lda, p.ldb)
        groups = ceil_div(p.n, ty if p.trans_b else tx)
        return [
            Launch(
                "matmul_skinny",
                (node.x, node.input(1), node.y, p.table(), *sizes, *epilogue.args),
                (groups * tx, ty, ceil_div(p.m, params["MR"]) * p.batches),
                (tx, ty, 1),
                common_defines(node, p, 1) | {"TRANS_B": p.trans_b, **params},
                epilogue.prelude,
            )
        ]
