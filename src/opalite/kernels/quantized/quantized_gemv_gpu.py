"""QuantizedMatMul of few rows on GPUs (GEMV): bound by reading the packed weights."""

from __future__ import annotations

from typing import Any

from ...cost.cost_tables import Unpacking, Windows
from ...ir.symbols import hint_of, may_have_remainder
from ...ops.operator import Cost
from ...ops.quantized_matmul import QuantizedMatMul
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import STORAGE, Launch, ceil_div
from ..matmul.matmul_problem import MatmulProblem, skinny_rows
from .pack_low_bit import STREAMED, codebook_defines, packed_args, take_zero, texel_defines
from .quantized_matmul_cpu import QuantizedMatmulKernel

MOST_ROWS = 64
_GROUP_ROWS = 16
_LEAST, _MOST = 64, 256  # work-items of a group
_GROUPS = 2  # work-groups per compute unit, so that one loads while another reduces
_NARROW, _WIDE = 8, 16  # columns of a group; four read the minimum memory transaction of 64 bytes


@register
class QuantizedGemvGpu(QuantizedMatmulKernel):
    """Adjacent work-items read 16 bytes each of adjacent columns; PARTS work-items split a column."""

    space = {"COLS": (8, 16, 32), "PARTS": (32, 16, 8), "UNROLL": (2, 4, 1), "MR": (1, 2, 4, 8, 16)}
    on_gpu = True

    def refuse(self, p: MatmulProblem) -> str | None:
        if min(p.device.max_work_group_size, p.device.max_work_item_sizes[0]) < _LEAST:
            return f"the device's work-groups are smaller than {_LEAST} work-items"
        if p.sizes.m > MOST_ROWS:  # a guard: a plan for few rows serves no prompt
            return f"a has {p.sizes.m!r} rows; this kernel is for at most {MOST_ROWS}"
        return super().refuse(p)

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        items, rows = params["COLS"] * params["PARTS"], params["MR"]
        most = min(_MOST, p.device.max_work_group_size, p.device.max_work_item_sizes[0])
        if not _LEAST <= items <= most:
            return f"work-groups have {_LEAST} to {most} work-items, here {items}"
        if not skinny_rows(p, _GROUP_ROWS) <= 2 * rows <= 2 * skinny_rows(p, _GROUP_ROWS):  # correct but slower
            return "the group has more rows than the product, or too few of them"
        quad = 128 // p.node.as_(QuantizedMatMul).bits
        nbytes = 4 * rows * max(params["PARTS"] * params["UNROLL"] * (quad + 4), items)
        if nbytes > p.device.local_mem:
            return f"the rows do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: MatmulProblem) -> Params:
        """The widest group that leaves every compute unit some groups, with the fewest iterations."""
        s = p.sizes
        quads = ceil_div(s.k, 128 // p.node.as_(QuantizedMatMul).bits)
        strips = ceil_div(hint_of(s.m), skinny_rows(p, _GROUP_ROWS))

        def order(point: Params) -> tuple[Any, ...]:
            columns, at_once = point["COLS"], point["PARTS"] * point["UNROLL"]
            groups, turns = ceil_div(s.n, columns) * strips, ceil_div(quads, at_once)
            idle = columns > _NARROW and groups < _GROUPS * p.device.compute_units
            wasted = turns * at_once - quads
            first = -point["MR"], idle, columns > _WIDE, wasted >= quads, -columns * point["PARTS"]
            return *first, turns, -columns, wasted

        return min(self.points(p), key=order)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        strips = ceil_div(max(1, p.sizes.m), skinny_rows(p, _GROUP_ROWS))
        widen = strips * Unpacking.of(p.device).in_registers / max(1, p.sizes.m)
        seconds = super().seconds(p, Cost(cost.flops * (1 + widen), cost.bytes))
        if p.device.prefers_images:  # which reads words as texels
            seconds = (seconds - p.device.launch_s) / Windows.of(p.device).texture_gain + p.device.launch_s
        return seconds * 20 if p.device.is_cpu else seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, op, s = p.node, p.node.as_(QuantizedMatMul), p.sizes
        aligned = not may_have_remainder(s.k, 4)
        epilogue = rows_epilogue(node, p.device)
        args, own = packed_args(node.input(1), node.input(2), node.get(3), op.bits, op.trans_b, STREAMED)
        zero = take_zero(args, op.bits)
        blocks = ceil_div(s.k, op.block)
        args |= {"a": node.x, "y": node.y, "M": s.m, "N": s.n, "K": s.k, **epilogue.args}
        args |= {"blocks": blocks, "zero": zero}
        own.pop("DEEP")
        own |= texel_defines(args["b"], p.device)
        own |= {"STORAGE": STORAGE[node.y.type.storage], "PACK": 4, "ALIGNED": int(aligned), **params}
        own["SPAN"] = op.block * op.bits // 32 if blocks > 1 else 0
        table, values = codebook_defines(p.device, op.table)
        own |= table
        own["FRACTION"] = int(own["ZEROS"] == 2 or not zero.is_integer() or abs(zero) > 1 << 9)
        group = params["COLS"] * params["PARTS"]
        grid = (ceil_div(s.n, params["COLS"]) * group, ceil_div(s.m, params["MR"]))
        return [Launch("quantized_skinny", args, grid, (group, 1), own, values + epilogue.prelude)]
