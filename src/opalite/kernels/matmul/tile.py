"""MatMul on GPUs: work-groups share tiles of both matrices through local memory."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ops.base import Cost
from ..base import Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..registry import register
from .flat import common_defines, common_refusal
from .problem import Problem, problem_of

VECTOR = 4

# (TM, TN, TX, TY, BK) from the largest tile, which reuses most, to the smallest, which leaves most work-groups.
TILES = ((8, 8, 16, 16, 16), (8, 8, 8, 8, 16), (4, 4, 16, 16, 16), (4, 4, 8, 8, 16))
SCARCE = (4, 4, 8, 8, 8)  # where local memory is 4 KiB


@register
class MatmulTile(Kernel):
    """TM x TN sums for each of TX x TY work-items; BK terms at a time."""

    half_sums = True
    op = "MatMul"
    source = "matmul/tile.cl"
    space: ClassVar[Space] = {
        "TM": (4, 8),
        "TN": (4, 8),
        "TX": (16, 8, 32),
        "TY": (16, 8, 4),
        "BK": (16, 8, 32),
    }

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if min(device.max_work_group_size, *device.max_work_item_sizes[:2]) < 64:
            return "the device's work-groups are smaller than 64 work-items"
        return common_refusal(node, device) or self.illegal(node, _params(SCARCE), device)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        tx, ty = params["TX"], params["TY"]
        if tx * ty > device.max_work_group_size:
            return f"the device runs at most {device.max_work_group_size} work-items in a group"
        cells = params["BK"] * (tx * params["TN"] + ty * params["TM"] + 2 * VECTOR)
        if cells * max(4, node.y.type.storage.size) > device.local_mem:
            return f"the tiles do not fit the {device.local_mem} bytes of local memory"
        return None

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        p = problem_of(node)
        legal = [t for t in map(_params, TILES) if self.illegal(node, t, device) is None]
        filling = [t for t in legal if _groups(p, t) >= 2 * device.compute_units]
        return (filling[:1] or legal[-1:] or [_params(SCARCE)])[0]

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        seconds = super().seconds(node, device, cost)
        # A CPU runs work-items one after the other and has no local memory apart: the sums leave its registers.
        return seconds * 20 if device.is_cpu else seconds

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        p = problem_of(node)
        tx, ty = params["TX"], params["TY"]
        epilogue = rows_epilogue(node, device)
        sizes = (max(len(p.batch), 1), p.batches, p.m, p.n, p.k, p.lda, p.ldb)
        return [
            Launch(
                "matmul_tile",
                (node.x, node.input(1), node.y, p.table(), *sizes, *epilogue.args),
                (ceil_div(p.n, tx * params["TN"]) * tx, ceil_div(p.m, ty * params["TM"]) * ty, p.batches),
                (tx, ty, 1),
                common_defines(node, p, VECTOR) | {"TRANS_B": p.trans_b, **params},
                epilogue.prelude,
            )
        ]


def _params(tile: tuple[int, int, int, int, int]) -> dict[str, int]:
    return dict(zip(("TM", "TN", "TX", "TY", "BK"), tile, strict=True))


def _groups(p: Problem, t: Params) -> int:
    return ceil_div(p.m, t["TY"] * t["TM"]) * ceil_div(p.n, t["TX"] * t["TN"]) * p.batches
