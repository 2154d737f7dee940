"""MatMul on GPUs: work-groups share tiles of both matrices through local memory."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ops.base import Cost
from ..base import Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import rows_epilogue
from ..registry import register
from .flat import common_defines, common_refusal
from .problem import MatmulProblem, MatmulSizes

VECTOR = 4

# (TM, TN, TX, TY, BK) from the largest tile, which reuses most, to the smallest, which leaves most work-groups.
TILES = ((8, 8, 16, 16, 16), (8, 8, 8, 8, 16), (4, 4, 16, 16, 16), (4, 4, 8, 8, 16))
SCARCE = (4, 4, 8, 8, 8)  # where local memory is 4 KiB


@register
class MatmulTile(Kernel):
    """TM x TN sums for each of TX x TY work-items; BK terms at a time."""

    half_sums = True
    op = "MatMul"
    problem = MatmulProblem
    source = "matmul/tile.cl"
    space: ClassVar[Space] = {
        "TM": (4, 8),
        "TN": (4, 8),
        "TX": (16, 8, 32),
        "TY": (16, 8, 4),
        "BK": (16, 8, 32),
    }

    def refuse(self, p: MatmulProblem) -> str | None:
        if min(p.device.max_work_group_size, *p.device.max_work_item_sizes[:2]) < 64:
            return "the device's work-groups are smaller than 64 work-items"
        return common_refusal(p.node, p.device) or self.illegal(p, _params(SCARCE))

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        tx, ty = params["TX"], params["TY"]
        if tx * ty > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        cells = params["BK"] * (tx * params["TN"] + ty * params["TM"] + 2 * VECTOR)
        if cells * max(4, p.node.y.type.storage.size) > p.device.local_mem:
            return f"the tiles do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: MatmulProblem) -> dict[str, Any]:
        s = p.sizes
        legal = [t for t in map(_params, TILES) if self.illegal(p, t) is None]
        filling = [t for t in legal if _groups(s, t) >= 2 * p.device.compute_units]
        return (filling[:1] or legal[-1:] or [_params(SCARCE)])[0]

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        seconds = super().seconds(p, cost)
        # A CPU runs work-items one after the other and has no local memory apart: the sums leave its registers.
        return seconds * 20 if p.device.is_cpu else seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node = p.node
        s = p.sizes
        tx, ty = params["TX"], params["TY"]
        epilogue = rows_epilogue(node, p.device)
        return [
            Launch(
                "matmul_tile",
                {"a": node.x, "b": node.input(1), "y": node.y, **s.args(), **epilogue.args},
                (ceil_div(s.n, tx * params["TN"]) * tx, ceil_div(s.m, ty * params["TM"]) * ty, s.batches),
                (tx, ty, 1),
                common_defines(node, s, VECTOR) | {"TRANS_B": s.trans_b, **params},
                epilogue.prelude,
            )
        ]


def _params(tile: tuple[int, int, int, int, int]) -> dict[str, int]:
    return dict(zip(("TM", "TN", "TX", "TY", "BK"), tile, strict=True))


def _groups(p: MatmulSizes, t: Params) -> int:
    return ceil_div(p.m, t["TY"] * t["TM"]) * ceil_div(p.n, t["TX"] * t["TN"]) * p.batches
