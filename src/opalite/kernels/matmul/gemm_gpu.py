"""MatMul on GPUs: register tiles, with tiles of both matrices in local memory or loads by each work-item (Mali)."""

from __future__ import annotations

from ...cost.cost_tables import LocalMemory
from ...ir.symbols import may_have_remainder
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..fma import tile_parameters as fma
from ..fma.tile_parameters import GemmSize, full_operands
from ..kernel import Params, register
from ..launch import Args, Launch, Scratch, ceil_div
from ..weight_packing import columns_weight
from .matmul_problem import MatmulKernel, MatmulProblem

VECTOR = 4


@register
class MatmulLocalTile(MatmulKernel):
    """Register tiles of any element type; a constant b is in panels, from which tiles are loaded directly."""

    rank = 3
    source = "matmul/gemm_local_tile.cl"
    space = fma.SPACE

    def refuse(self, p: MatmulProblem) -> str | None:
        if next(fma.legal_tiles(p.device, _element(p)), None) is None:
            return "the device's work-groups are smaller than 64 work-items, or have no local memory for tiles"
        return p.refusal()

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        if params["PARTS"] > 1 and may_have_remainder(p.sizes.n, VECTOR):
            return "sums of parts are added up by vectors of whole rows"
        return fma.tile_illegal(params, p.device, _element(p))

    def defaults(self, p: MatmulProblem) -> Params:
        s = p.sizes
        sums = GemmSize(s.m, s.n, s.k, s.batches, full_operands(p.node))
        return fma.find_tile(sums, p.device, _element(p), whole=may_have_remainder(s.n, VECTOR))

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        seconds = super().seconds(p, cost)
        # A CPU runs work-items sequentially and its local memory is ordinary memory: accumulators leave registers.
        if p.device.is_cpu:
            return seconds * 20
        return seconds if p.device.local_mem_dedicated else seconds * LocalMemory.of(p.device).through_memory

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, b = p.node, p.sizes, p.node.input(1)
        panels, parts = p.has_panels, params["PARTS"]
        inner = (s.m if s.trans_a else s.k, s.n, *(() if panels else (s.k if s.trans_b else s.n,)))
        aligned = not any(may_have_remainder(size, VECTOR) for size in inner)
        epilogue = rows_epilogue(node, p.device, aligned=aligned)
        right = columns_weight(b, s.trans_b, fma.tile_size(params)[1], fma.slab(params)) if panels else b
        (rows, columns), group = fma.tile_size(params), fma.group_size(params)
        defines = p.defines(VECTOR) | {"TRANS_B": s.trans_b, **fma.tile_defines(params)}
        defines |= {"PANELS": panels, "ALIGNED": aligned}
        grid = (ceil_div(s.n, columns) * group, ceil_div(s.m, rows), s.batches * parts)
        args: Args = {"a": node.x, "b": right, **s.args()}
        if parts == 1:
            args |= {"y": node.y, **epilogue.args}
            return [Launch("matmul_tile", args, grid, (group, 1, 1), defines, epilogue.prelude)]
        lines = s.batches * s.m
        sums = Scratch("parts", parts * lines * s.n * _element(p))
        last: Args = {"parts": sums, "y": node.y, "rows": lines, "N": s.n, **epilogue.args}
        return [
            Launch("matmul_tile", {**args, "parts": sums}, grid, (group, 1, 1), defines, epilogue.prelude),
            Launch("matmul_parts", last, (s.n // VECTOR, lines), None, defines, epilogue.prelude),
        ]


def _element(p: MatmulProblem) -> int:
    """Bytes of an accumulator."""
    return max(4, p.node.y.type.storage.size)


_FEW = 2048  # work-items per compute unit from which each takes more columns


@register
class MatmulRegisterTile(MatmulKernel):
    """TM rows by TN vectors of columns per work-item, any element type; a constant b is in panels."""

    source = "matmul/gemm_register_tile.cl"
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
