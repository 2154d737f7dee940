"""MatMul on GPUs whose local memory is ordinary memory (Mali): register tiles, loads by each work-item."""

from __future__ import annotations

from ...cost.cost_tables import LocalMemory
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import Args, Launch, ceil_div
from ..weight_packing import columns_weight
from .matmul_problem import MatmulKernel, MatmulProblem

VECTOR = 4
_FEW = 2048  # work-items per compute unit from which each takes more columns


@register
class MatmulRegisterTile(MatmulKernel):
    """TM rows by TN vectors of columns per work-item, any element type; a constant b is in panels."""

    rank = 1
    space = {"TM": (4, 2, 1, 8), "TN": (1, 2, 4)}

    def defaults(self, p: MatmulProblem) -> Params:
        rows = self._rows(p)
        return {"TM": rows, "TN": 2 if self._items(p, rows) >= 2 * _FEW * p.device.compute_units else 1}

    @staticmethod
    def _rows(p: MatmulProblem) -> int:
        return next(tm for tm in (4, 2, 1) if tm <= max(1, p.sizes.m))

    @staticmethod
    def _items(p: MatmulProblem, rows: int) -> int:
        """Work-items if each takes one vector of columns."""
        return p.sizes.batches * ceil_div(p.sizes.m, rows) * ceil_div(p.sizes.n, VECTOR)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        """Few work-items leave most of the device idle."""
        wanted = p.device.compute_units * max(p.device.wave_size, 16)
        idle = max(1.0, wanted / max(1, self._items(p, self._rows(p))))
        seconds = super().seconds(p, Cost(idle * cost.flops, cost.bytes))
        if p.device.is_cpu:
            return seconds * 20  # on a CPU MatmulPanelsCpu keeps whole tiles in vector registers
        return seconds * LocalMemory.of(p.device).repeated if p.device.local_mem_dedicated else seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, b = p.node, p.sizes, p.node.input(1)
        columns = params["TN"] * VECTOR
        panels = p.has_panels
        epilogue = rows_epilogue(node, p.device)
        right = columns_weight(b, s.trans_b, columns, VECTOR) if panels else b
        defines = p.defines(VECTOR) | {"TRANS_B": s.trans_b, "PANELS": panels, **params}
        grid = (ceil_div(s.n, columns), ceil_div(s.m, params["TM"]), s.batches)
        args: Args = {"a": node.x, "b": right, "y": node.y, **s.args(), **epilogue.args}
        return [Launch("matmul_register", args, grid, defines=defines, prelude=epilogue.prelude)]
