"""Products of images with matrices of a few bits, which are read as texels and dequantised in registers."""

from __future__ import annotations

from ...cost.cost_tables import Unpacking
from ...ops.operator import Cost
from ...ops.quantized_matmul import QuantizedMatMul
from ..codegen.epilogue import epilogue_refusal, image_epilogue, operand_layouts, rows_epilogue
from ..kernel import Binding, Bindings, Params, register
from ..launch import STORAGE, Args, Launch, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from ..quantized.pack_low_bit import STREAMED, codebook_defines, packed_args, packing_refusal, take_zero, texel_defines
from ..quantized.quantized_matmul_cpu import exact_refusal
from .image_layout import image_prelude, image_refusal
from .image_matmul import SIDES, ImageMatmul, layout_kind

_ROWS = 8  # most rows that a work-item dequantises a word for


@register
class ImageQuantizedMatmul(ImageMatmul):
    """Products of up to three dimensions, of any number of rows. The words of `b` are those of the buffer kernels."""

    op = "QuantizedMatMul"
    source = "image/image_quantized_matmul.cl"
    half_sums = False
    rank = 1  # few rows stay in buffers, where slices of the result are views
    least_terms = 64
    most_rows = _ROWS
    space = {"TM": (8, 4, 2, 1), "TB": (1, 2), "SPLIT": (1, 4, 8, 16)}

    def refuse(self, p: MatmulProblem) -> str | None:
        node, op = p.node, p.node.as_(QuantizedMatMul)
        if why := image_refusal(p.device, node.x.type, node.y.type, ranks=self.ranks):
            return why
        why = packing_refusal(node.input(1), node.input(2), node.get(3), op.bits, op.block, node.x.shape[-1])
        if why := why or exact_refusal(p):
            return why
        refusals = [epilogue_refusal(node, kind) for kind in ("image", "rows")]
        return refusals[0] if all(refusals) else None

    def bindings(self, p: MatmulProblem) -> Bindings:
        node, constants = p.node, (None,) * (p.node.op.arity - 1)
        return [
            Binding((a, *constants, *operand_layouts(node, layout_kind(y), y)), (y,))
            for a, y in SIDES
            if epilogue_refusal(node, layout_kind(y)) is None
        ]

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        rows = max(1, p.sizes.m)
        widen = ceil_div(rows, _ROWS) * Unpacking.of(p.device).in_registers / rows
        return super().seconds(p, Cost(cost.flops * (1 + widen), cost.bytes))

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, op, s = p.node, p.node.as_(QuantizedMatMul), p.sizes
        to_buffer = node.y.type.layout.is_row_major
        epilogue = (rows_epilogue if to_buffer else image_epilogue)(node, p.device)
        args, own = packed_args(node.input(1), node.input(2), node.get(3), op.bits, op.trans_b, STREAMED)
        own.pop("DEEP")
        own |= texel_defines(args["b"], p.device)
        blocks = ceil_div(s.k, op.block)
        sizes: Args = {"M": s.m, "N": s.n, "K": s.k, "H": node.y.shape[-2], "parts_of_k": blocks}
        args |= {"a": node.x, "y": node.y, **sizes, "zero": take_zero(args, op.bits), **epilogue.args}
        table, values = codebook_defines(p.device, op.table)
        own |= {**self.sides(node), **table, "SPAN": op.block * op.bits // 32 if blocks > 1 else 0}
        own["STORAGE"] = STORAGE[node.y.type.storage]
        grid, group, tile = self.tiling(s, params)
        prelude = values + image_prelude(node, epilogue)
        return [Launch("image_quantized_matmul", args, grid, group, own | tile, prelude)]
