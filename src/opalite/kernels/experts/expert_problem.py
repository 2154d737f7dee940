"""An ExpertMatMul node as kernels query it, and the code that its kernels share."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...ir.dtype import DType
from ...ir.symbols import hint_of, symbolic_max
from ...ops.expert_matmul import ExpertMatMul
from ..codegen.epilogue import epilogue_refusal, rows_epilogue
from ..kernel import Binding, Bindings, Kernel, Params, Problem, flat_binding
from ..launch import STORAGE, Args, Defines, Launch, Scratch, Weight, ceil_div
from ..matmul.gemm_cpu import to_panels
from ..quantized.pack_low_bit import PanelLayout, packed_args, packing_refusal


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
