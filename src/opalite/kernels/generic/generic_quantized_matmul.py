"""Generic QuantizedMatMul and QuantizedGather, by one program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.symbols import symbolic_max
from ...ops.quantized_matmul import QuantizedGather, QuantizedMatMul
from ..integer.matmul_vnni import PanelArgs, panels_binding, panels_refusal
from ..kernel import Bindings, Params, Problem, register
from ..launch import Args, Launch, Scratch, Weight, ceil_div
from ..matmul.matmul_problem import MatmulProblem
from ..quantized.pack_low_bit import (
    packed_args,
    packed_binding,
    packing_refusal,
    panel_width,
    panels_of,
    take_zero,
    to_panels,
)
from ..quantized.quantized_matmul_cpu import activation_quantization_refusal, scale_group, sum_length
from .generic_kernel import INT_MAX, Build, GenericKernel, storage_of, vector_defines

ROWS = 4  # constants of generic_quantized_matmul.cl and generic_int8_matmul.cl


class GenericPackedWeightKernel(GenericKernel):
    """Base class: launches with a packed low-bit matrix."""

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        width, deep = panels_of(device)
        defines = {"PACK": vector_defines(device)["PACK"], "WIDTH": width}
        return [Build(self.source, defines if deep == 1 else defines | {"DEEP": deep})]

    def words(
        self,
        p: Problem,
        entry: str,
        op: QuantizedMatMul | QuantizedGather,
        held: Sequence[Value | None],
        transposed: bool,
    ) -> Launch:
        """A launch of `entry` with matrix `held` (integers, scales, zero points), still without its own arguments."""
        b, scale, zero = held
        assert b is not None
        assert scale is not None
        args, _ = packed_args(b, scale, zero, op.bits, transposed, panels_of(p.device))
        width = panel_width(p.device)
        offset = 1 << (op.bits - 1) if b.dtype is DType.INT8 else 0
        shared = take_zero(args, op.bits)
        args["scale"] = _floats(scale, width, 0)
        args["zeros"] = args["scale"] if "zeros" not in args or zero is None else _floats(zero, width, offset)
        args |= {"bits": op.bits, "block": op.block, "has_zeros": int(args["zeros"] is not args["scale"])}
        args["zero"] = shared
        (build,) = self.builds(p.device)
        return Launch(entry, args, (), defines=build.defines)


def _floats(v: Value, width: int, offset: int) -> Weight:
    return Weight(v, f"panels{width}+{offset}:f32", to_panels(width, np.dtype(np.float32), offset), by_slices=True)


def _refusal(node: Node, *floats: Value) -> str | None:
    """The reason why a float32 kernel with a packed matrix does not take `node`, or None."""
    if node.epilogue is not None:
        return "the general kernel has no epilogue"
    for v in floats:
        if storage_of(node, v) is not DType.FLOAT32:
            return f"{v!r} is {storage_of(node, v)}; the general kernel computes float32"
        if v.type.count > INT_MAX:
            return f"{v!r} is beyond 32-bit indices"
    return None


@register
class QuantizedMatmulGeneric(GenericPackedWeightKernel):
    """A few rows by a vector of columns."""

    op = "QuantizedMatMul"
    problem = MatmulProblem

    def refuse(self, p: MatmulProblem) -> str | None:
        node, op = p.node, p.node.as_(QuantizedMatMul)
        if op.table:
            return "the general kernel knows no tables of values"
        why = packing_refusal(node.input(1), node.input(2), node.get(3), op.bits, op.block, node.x.shape[-1])
        return why or _refusal(node, node.x, node.y)

    def bindings(self, p: MatmulProblem) -> Bindings:
        return (packed_binding(p.node, 1),)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, op, s = p.node, p.node.as_(QuantizedMatMul), p.sizes
        made = self.words(p, "multiply_words", op, [node.input(1), node.input(2), node.get(3)], op.trans_b)
        args: Args = {**made.args, "a": node.x, "y": node.y, "M": s.m, "N": s.n, "K": s.k}
        width = panel_width(p.device)
        grid = (ceil_div(s.n, width) * (width // made.defines["PACK"]), ceil_div(s.m, ROWS))
        product = Launch(made.entry, args, grid, defines=made.defines)
        if activation_quantization_refusal(p) is not None:
            return [product]
        args["a"] = Scratch("rounded", symbolic_max([4, 4 * s.m * s.k]))
        size = scale_group(op.block, sum_length(p))
        given: Args = {"a": node.x, "rounded": args["a"], "M": s.m, "K": s.k, "group": size}
        return [Launch("round_floats", given, (ceil_div(s.k, size), s.m), defines=made.defines), product]


@register
class QuantizedGatherGeneric(GenericPackedWeightKernel):
    """A packed word of a row per work-item."""

    op = "QuantizedGather"

    def refuse(self, p: Problem) -> str | None:
        node, op = p.node, p.node.as_(QuantizedGather)
        why = packing_refusal(node.x, node.input(2), node.get(3), op.bits, op.block, node.x.shape[1])
        return why or _refusal(node, node.y)

    def bindings(self, p: Problem) -> Bindings:
        return (packed_binding(p.node, 0),)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(QuantizedGather)
        made = self.words(p, "read_words", op, [node.x, node.input(2), node.get(3)], True)
        (size, columns), indices = node.x.shape, node.input(1)
        args: Args = {**made.args, "indices": indices, "y": node.y, "count": indices.type.count}
        args |= {"size": size, "columns": columns, "wide": int(indices.dtype is DType.INT64)}
        grid = (ceil_div(columns, 32 // op.bits), indices.type.count)
        return [Launch(made.entry, args, grid, defines=made.defines)]


@register
class MatmulVnniGeneric(GenericKernel):
    """A few rows by a vector of columns."""

    source = "generic/generic_int8_matmul.cl"
    op = "IntegerMatMul"
    problem = MatmulProblem

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        if device.byte_dots != "fours":
            return []
        return [Build(self.source, {"PACK": vector_defines(device)["PACK"], "WIDTH": panel_width(device), "DOTS": 2})]

    def refuse(self, p: MatmulProblem) -> str | None:
        if p.node.epilogue is not None:
            return "the general kernel has no epilogue"
        return panels_refusal(p) or p.refusal()

    def bindings(self, p: MatmulProblem) -> Bindings:
        return (panels_binding(p.node),)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, held = p.node, p.sizes, PanelArgs(p)
        (build,) = self.builds(p.device)
        args: Args = {"a": node.x, "b": held.b, "column_sums": held.column_sums, "y": node.y}
        args |= {"a_zero": held.a_zero or node.x, "b_zero": held.b_zero or held.column_sums}
        args |= {"has_a_zero": int(held.a_zero is not None), "has_b_zero": int(held.b_zero is not None)}
        args |= {"M": s.m, "N": s.n, "K": s.k, "flip": 0x80 if node.x.dtype.np == np.int8 else 0}
        tiles = panel_width(p.device) // (2 * build.defines["PACK"])  # of two vectors
        grid = (ceil_div(s.n, panel_width(p.device)) * tiles, ceil_div(s.m, ROWS))
        return [Launch("multiply_bytes", args, grid, defines=build.defines)]
