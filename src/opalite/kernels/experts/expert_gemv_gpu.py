"""ExpertMatMul on GPUs (GEMV): work-groups split the terms of a selected expert's panel."""

from __future__ import annotations

from ...ir.symbols import hint_of
from ...ops.operator import Cost
from ..kernel import Params, register
from ..launch import Launch
from ..quantized.pack_low_bit import STREAMED, PanelLayout
from .expert_problem import ExpertKernel, ExpertProblem


@register
class ExpertGemvGpu(ExpertKernel):
    """PARTS work-items split the terms of each column of a panel."""

    entry = "expert_groups"
    space = {"MR": (1, 2, 4, 8), "PARTS": (8, 4, 2, 1)}

    def panels(self, p: ExpertProblem) -> PanelLayout:
        return STREAMED

    def refuse(self, p: ExpertProblem) -> str | None:
        if min(p.device.max_work_group_size, p.device.max_work_item_sizes[0]) < STREAMED.width:
            return f"the device's work-groups are smaller than {STREAMED.width} work-items"
        return super().refuse(p)

    def illegal(self, p: ExpertProblem, params: Params) -> str | None:
        items = STREAMED.width * params["PARTS"]
        if items > min(p.device.max_work_group_size, p.device.max_work_item_sizes[0]):
            return f"the device runs fewer than {items} work-items in a group"
        if 4 * items * params["MR"] > p.device.local_mem:
            return f"the sums do not fit the {p.device.local_mem} bytes of local memory"
        if params["MR"] > max(1, hint_of(p.slots)):  # correct but slower
            return "the tile has more rows than the product"
        return None

    def defaults(self, p: ExpertProblem) -> Params:
        """MR = 1 for one token; otherwise about as many slots as an expert has."""
        rows = 1 if hint_of(p.slots) <= p.node.input(1).shape[1] else max(2, p.rows_of_an_expert)
        return min(self.points(p), key=lambda at: (at["MR"] > rows, -at["MR"], -at["PARTS"]))

    def seconds(self, p: ExpertProblem, cost: Cost) -> float:
        seconds = super().seconds(p, cost)
        return seconds * 20 if p.device.is_cpu else seconds

    def launch(self, p: ExpertProblem, params: Params) -> list[Launch]:
        group = STREAMED.width * params["PARTS"]
        return self._launch(p, params, group, (group, 1), {"MR": params["MR"], "PARTS": params["PARTS"]})
