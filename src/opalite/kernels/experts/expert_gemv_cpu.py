"""ExpertMatMul on CPUs: a selected expert's panel is read from memory once for several of its rows."""

from __future__ import annotations

from ...cost.cost_tables import Unpacking
from ...ir.symbols import hint_of
from ...ops.operator import Cost
from ..kernel import Params, register
from ..launch import Launch
from ..quantized.pack_low_bit import VECTORS, PanelLayout, panels_of
from ..quantized.quantized_matmul_cpu import GROUP, most_rows
from .expert_problem import ExpertKernel, ExpertProblem


@register
class ExpertGemvCpu(ExpertKernel):
    """Accumulators of MR rows by a panel stay in registers."""

    entry = "expert_rows"
    space = {"MR": (1, 2, 3, 4, 5, 6)}

    def panels(self, p: ExpertProblem) -> PanelLayout:
        return panels_of(p.device)

    def refuse(self, p: ExpertProblem) -> str | None:
        if not p.device.is_cpu:
            return "register tiles of one work-item are for CPUs"
        return super().refuse(p)

    def illegal(self, p: ExpertProblem, params: Params) -> str | None:
        if params["MR"] > most_rows(p.device.pack):
            return "the sums do not fit the registers"
        if params["MR"] > max(1, hint_of(p.slots)):  # correct but slower
            return "the tile has more rows than the product"
        return None

    def defaults(self, p: ExpertProblem) -> Params:
        """The experts of one token are all different; several tokens give an expert many rows."""
        slots = hint_of(p.slots)
        if slots <= p.node.input(1).shape[1]:
            return {"MR": 1}
        return {"MR": min(most_rows(p.device.pack), slots, max(2, p.rows_of_an_expert))}

    def seconds(self, p: ExpertProblem, cost: Cost) -> float:
        rows = min(most_rows(p.device.pack), p.rows_of_an_expert)
        widen = Unpacking.of(p.device).in_registers / rows if p.op.bits else 0.0
        return super().seconds(p, Cost(cost.flops * (1 + widen), cost.bytes))

    def launch(self, p: ExpertProblem, params: Params) -> list[Launch]:
        own = {"MR": params["MR"], "NV": VECTORS, "KS": 2 if params["MR"] == 1 else 1, "PACK": p.device.pack}
        return self._launch(p, params, 1, GROUP[:2], own)
