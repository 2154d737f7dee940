"""Generic int8 matrix products on CPUs with VNNI, by one program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ..integer.matmul_vnni import PanelArgs, panels_binding, panels_refusal
from ..kernel import Bindings, Params, register
from ..launch import Args, Launch, ceil_div
from ..matmul.matmul_any import common_refusal
from ..matmul.matmul_problem import MatmulProblem
from ..quantized.pack_low_bit import panel_width
from .generic_kernel import Build, GenericKernel, vector_defines

ROWS = 4  # constants of generic_int8_matmul.cl


@register
class MatmulVnniGeneric(GenericKernel):
    """A few rows by a vector of columns."""

    op = "IntegerMatMul"
    problem = MatmulProblem

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        if device.byte_dots != "fours":
            return []
        return [Build(self.source, {"PACK": vector_defines(device)["PACK"], "WIDTH": panel_width(device), "DOTS": 2})]

    def refuse(self, p: MatmulProblem) -> str | None:
        if p.node.epilogue is not None:
            return "the general kernel has no epilogue"
        return panels_refusal(p) or common_refusal(p.node, p.device)

    def bindings(self, p: MatmulProblem) -> Bindings:
        return (panels_binding(p.node),)

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, held = p.node, p.sizes, PanelArgs(p)
        (build,) = self.builds(p.device)
        args: Args = {"a": node.x, "b": held.b, "column_sums": held.column_sums, "y": node.y}
        args |= {"a_zero": held.a_zero or node.x, "b_zero": held.b_zero or held.column_sums}
        args |= {"has_a_zero": int(held.a_zero is not None), "has_b_zero": int(held.b_zero is not None)}
        args |= {"M": s.m, "N": s.n, "K": s.k, "flip": 0x80 if node.x.dtype.np == np.int8 else 0}
        vectors = panel_width(p.device) // build.defines["PACK"]
        grid = (ceil_div(s.n, panel_width(p.device)) * vectors, ceil_div(s.m, ROWS))
        return [Launch("multiply_bytes", args, grid, defines=build.defines)]
