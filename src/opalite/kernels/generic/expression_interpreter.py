"""Interpreted elementwise expressions: one program computes them all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.device.device_info import DeviceInfo
from ...ops.elementwise import Elementwise
from ..elementwise.broadcast_row_major import make_broadcast_loop
from ..kernel import Params, Problem, register
from ..launch import Args, Launch, ceil_div
from .generic_kernel import Build, GenericKernel, storage_of, vector_defines
from .interpreter_operations import HELD, Code, compile_expression, program_of

OPERANDS, AXES = 6, 5  # limits of expression_interpreter.cl
_CPU_VECTORS = 16  # vectors of a row that share the decoding of an operation


@register
class ElementwiseGeneric(GenericKernel):
    """A work-item runs the expression's code on a segment of a row."""

    op = "Elementwise"

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if len(node.inputs) > OPERANDS:
            return f"{len(node.inputs)} operands; the general kernel takes {OPERANDS}"
        for v in (*node.inputs, *node.outputs):
            if v is not None and storage_of(node, v) not in HELD:
                return f"{v!r}, held as {storage_of(node, v)}, is of a type that the general kernel does not hold"
        code = compile_expression(node.as_(Elementwise).expr)
        if isinstance(code, str):
            return code
        walk = make_broadcast_loop([v.shape for v in node.inputs if v is not None], node.y.shape)
        return f"{len(walk.extents)} axes that cannot be merged" if len(walk.extents) > AXES else None

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        inputs = [v for v in node.inputs if v is not None]
        code = compile_expression(node.as_(Elementwise).expr)
        assert isinstance(code, Code)
        walk = make_broadcast_loop([v.shape for v in inputs], node.y.shape)
        extents = (1,) * (AXES - len(walk.extents)) + walk.extents
        columns, rows = extents[-1], math.prod(extents[:-1])
        args: Args = {"y": node.y, "ty": HELD[node.y.type.storage], "code": code.table, "steps": code.steps}
        args |= {"operands": len(inputs), "result": code.result, "columns": columns, "rows": rows}
        args |= {f"e{axis}": extent for axis, extent in enumerate(extents[:-1])}
        for k in range(OPERANDS):
            given = k < len(inputs)
            strides = walk.strides[k] if given else ()
            args |= {f"x{k}": inputs[k] if given else node.y, f"t{k}": HELD[inputs[k].type.storage] if given else 0}
            args |= {f"s{k}_{axis}": s for axis, s in enumerate((0,) * (AXES - len(strides)) + strides)}
        build = self.build(p.device, code.is_float)
        grid = (ceil_div(columns, build.defines["PACK"] * build.defines["VECTORS"]), rows)
        return [Launch("elementwise_general", args, grid, defines=build.defines, prelude=build.prelude)]

    def build(self, device: DeviceInfo, is_float: bool) -> Build:
        """The program for expressions of floats and conditions, or of all types."""
        defines = vector_defines(device) | ({"VECTORS": _CPU_VECTORS} if device.is_cpu else {})
        return Build(self.source, defines, program_of(is_float, defines["PACK"], device))

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [self.build(device, is_float) for is_float in (True, False)]
