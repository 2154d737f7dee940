"""An ExpertMatMul node as kernels query it, and the code that its kernels share."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...cost.cost_tables import Unpacking
from ...ir.dtype import DType
from ...ir.symbols import hint_of, symbolic_max
from ...ops.expert_matmul import ExpertMatMul
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, rows_epilogue
from ..kernel import Binding, Bindings, Kernel, Params, Problem, flat_binding, register
from ..launch import STORAGE, Args, Defines, Launch, Scratch, Weight, ceil_div
from ..matmul.gemm_cpu import to_panels
from ..quantized.pack_low_bit import STREAMED, VECTORS, PanelLayout, packed_args, packing_refusal, panels_of
from ..quantized.quantized_matmul_cpu import GROUP, TILES, most_rows


class ExpertProblem(Problem):
    """Products of rows with the matrices of their selected experts."""

    @cached_property
    def op(self) -> ExpertMatMul:
        """The node's attributes."""
        return self.node.as_(ExpertMatMul)

    @property
    def slots(self) -> int:
        """(row, expert) pairs: rows of y."""
        return self.node.input(1).type.count

    @property
    def n(self) -> int:
        """Columns of y: rows of each expert's matrix in w."""
        return int(self.node.input(2).shape[0]) // self.op.experts

    @property
    def k(self) -> int:
        """Terms of a sum."""
        return int(self.node.input(2).shape[1])

    @property
    def each(self) -> int:
        """Slots that share a row of x."""
        return self.node.input(1).shape[1] if len(self.node.x.shape) == 2 else 1

    @property
    def rows_of_an_expert(self) -> int:
        """Slots per expert if evenly distributed, at the planned sizes."""
        return max(1, ceil_div(hint_of(self.slots), self.op.experts))


class ExpertKernel(Kernel):
    """Base class. MR: slots of one expert that share a panel read; 1: slots in their given order."""

    op = "ExpertMatMul"
    problem = ExpertProblem
    entry: str

    def panels(self, p: ExpertProblem) -> PanelLayout:
        """The panel layout of the matrices."""
        raise NotImplementedError

    def refuse(self, p: ExpertProblem) -> str | None:
        node, op = p.node, p.op
        if not node.input(2).is_const:
            return "the experts' matrices must be a constant"
        if symbolic_max(v.type.count for v in (node.x, node.y)) >= 1 << 31:
            return "a tensor is beyond 32-bit indices"
        why = op.bits and packing_refusal(node.input(2), node.input(4), node.get(5), op.bits, op.block, p.k)
        return why or epilogue_refusal(node, "rows")

    def bindings(self, p: ExpertProblem) -> Bindings:
        flat = flat_binding(p.node)
        return (Binding(tuple(None if i in (2, 4, 5) else at for i, at in enumerate(flat.inputs)), flat.outputs),)

    def _launch(
        self, p: ExpertProblem, params: Params, across: int, group: tuple[int, ...], own: Defines
    ) -> list[Launch]:
        """Launches for the panels of an expert; a work-group takes `across` items per panel."""
        node, op = p.node, p.op
        index = {"INDEX": "long" if node.input(1).dtype is DType.INT64 else "int"}
        args, defines = _matrices(p, self.panels(p))
        args |= {"x": node.x, "y": node.y, "slots": p.slots, "N": p.n, "K": p.k, "each": p.each, "experts": op.experts}
        bias = node.get(3)
        if bias is not None:
            args["bias"] = bias
        launches: list[Launch] = []
        is_sorted = params["MR"] > 1
        if is_sorted:
            args["starts"] = Scratch("starts", 4 * (op.experts + 1))
            args["order"] = Scratch("order", symbolic_max([4, 4 * p.slots]))
            given: Args = {"picks": node.input(1), "starts": args["starts"], "order": args["order"]}
            given |= {"count": p.slots, "experts": op.experts}
            launches = [Launch("order_slots", given, (op.experts,), defines=index, source="experts/sort_by_expert.cl")]
        else:
            args["picks"] = node.input(1)
        epilogue = rows_epilogue(node, p.device)
        # An expert's columns that start inside a panel occupy one more panel.
        width = self.panels(p).width
        touched = p.n // width if p.n % width == 0 else ceil_div(p.n - 1, width) + 1
        grid = (touched * across, op.experts if is_sorted else p.slots)
        defines |= {"STORAGE": STORAGE[node.y.type.storage], "SORTED": int(is_sorted), **index, **own}
        defines["HAS_BIAS"] = int(bias is not None)
        return [*launches, Launch(self.entry, {**args, **epilogue.args}, grid, group, defines, epilogue.prelude)]


def _matrices(p: ExpertProblem, panels: PanelLayout) -> tuple[Args, Defines]:
    """(arguments, defines) of the stacked matrices with their scales and zero points."""
    node, op, w = p.node, p.op, p.node.input(2)
    if op.bits:
        args, defines = packed_args(w, node.input(4), node.get(5), op.bits, True, panels)
        return {**args, "block": op.block}, defines
    storage, width = node.y.type.storage, panels.width
    packed_type = np.dtype(storage.np), (ceil_div(w.shape[0], width), p.k, width)
    held = Weight(
        w, f"panels{width}t:{storage}", to_panels(width, True, storage.np), by_slices=True, packed_type=packed_type
    )
    return {"b": held}, {"BITS": 0}


@register
class ExpertGemmCpu(ExpertKernel):
    """A panel is dequantised in chunks, once for many of an expert's rows."""

    source = "experts/expert_gemm_cpu.cl"
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


@register
class ExpertGemvCpu(ExpertKernel):
    """Accumulators of MR rows by a panel stay in registers."""

    source = "experts/expert_gemv_cpu.cl"
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


@register
class ExpertGemvGpu(ExpertKernel):
    """PARTS work-items split the terms of each column of a panel."""

    source = "experts/expert_gemv_gpu.cl"
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
