"""ExpertMatMul with low-bit weights and many rows on CPUs: panels are dequantised into the L1 cache."""

from __future__ import annotations

from ...cost.cost_tables import Unpacking
from ...ops.operator import Cost
from ..kernel import Params, register
from ..launch import Launch, ceil_div
from ..quantized.pack_low_bit import VECTORS, PanelLayout, panels_of
from ..quantized.quantized_matmul_cpu import GROUP, TILES, most_rows
from .expert_problem import ExpertKernel, ExpertProblem


@register
class ExpertGemmCpu(ExpertKernel):
    """A panel is dequantised in chunks, once for many of an expert's rows."""

    entry = "expert_panel"
    space = {"MR": (6, 5, 4, 3, 2)}

    def panels(self, p: ExpertProblem) -> PanelLayout:
        return panels_of(p.device)

    def refuse(self, p: ExpertProblem) -> str | None:
        if not p.device.is_cpu:
            return "register tiles of one work-item are for CPUs"
        if not p.op.bits:
            return "the matrices are floats, which need no widening"
        return super().refuse(p)

    def illegal(self, p: ExpertProblem, params: Params) -> str | None:
        if params["MR"] > most_rows(p.device.pack):
            return "the sums do not fit the registers"
        return None

    def seconds(self, p: ExpertProblem, cost: Cost) -> float:
        m, tile = p.rows_of_an_expert, most_rows(p.device.pack)
        padded = ceil_div(m, tile) * tile / m
        widened = ceil_div(m, TILES * tile) * Unpacking.of(p.device).in_cache / m
        return super().seconds(p, Cost(cost.flops * (padded + widened), cost.bytes))

    def launch(self, p: ExpertProblem, params: Params) -> list[Launch]:
        return self._launch(p, params, 1, GROUP[:2], {"MR": params["MR"], "NV": VECTORS, "PACK": p.device.pack})
