"""Elementwise on channel-packed tensors: the expression is the epilogue of a copy."""

from __future__ import annotations

import copy
import math

from ...expr.expression import Expr, In, Ref
from ...expr.trace_function import Builder
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import Layout, packed
from ...ir.symbols import may_have_remainder, symbolic_max, symbolic_min
from ...ops.elementwise import Elementwise
from ...ops.integer_conv_matmul import BYTES
from ..codegen.epilogue import epilogue_refusal, operand_layouts, packed_epilogue
from ..codegen.vector_types import pointer_type
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, ceil_div

PACKED_TYPES = (DType.FLOAT32, DType.FLOAT16)


@register
class ElementwisePacked(Kernel):
    """Copies one operand of the output's shape through the expression; others broadcast as epilogues allow."""

    op = "Elementwise"
    space = {"EACH": (16, 8, 4, 2, 1, 64)}
    untuned = {"EACH": 32}, {"EACH": 1}

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if len(node.y.shape) not in (3, 4, 5):
            return f"a tensor of rank {len(node.y.shape)} has no channels to pack"
        if _reads_bytes(p):
            return copy_refusal(node, "packed", mixed=True)
        if node.y.dtype not in PACKED_TYPES:
            return f"packed tensors hold floats, not {node.y.dtype}"
        return copy_refusal(node, "packed")

    def bindings(self, p: Problem) -> Bindings:
        return (copy_binding(p.node, "packed", packed(p.device.pack)),)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        main = main_operand(node)
        assert main is not None
        pack = node.y.type.layout.pack
        n, channels, *rest = node.y.shape
        spatial, blocks = math.prod(rest), ceil_div(channels, pack)
        each = symbolic_max([1, symbolic_min([params["EACH"], spatial])])
        each_rows = symbolic_max([1, params["EACH"] // each])
        x = node.input(main)
        source = x.dtype if _reads_bytes(p) else None
        epilogue = packed_epilogue(as_epilogue(node, main), p.device, source)
        defines: Defines = {
            "STORAGE": STORAGE[node.y.type.storage],
            "PACK": pack,
            "TAIL": may_have_remainder(channels, pack),
        }
        if source is not None:
            defines["X_REAL"] = pointer_type(x.type.storage)
            if x.type.storage is DType.FLOAT16 is not source:
                defines["X_HALVES"] = 1
        args: Args = {"x": x, "y": node.y, "channels": channels, "blocks": blocks, "spatial": spatial}
        args |= {"rows": n * blocks, "each": each, "each_rows": each_rows, **epilogue.args}
        grid = (ceil_div(spatial, each), ceil_div(n * blocks, each_rows))
        return [Launch("elementwise_packed", args, grid, defines=defines, prelude=epilogue.prelude)]


def _reads_bytes(p: Problem) -> bool:
    """Whether the node reads or writes int8 tensors, which CPU convolutions hold in blocks."""
    main = main_operand(p.node)
    if main is None or not p.device.is_cpu or p.device.byte_dots != "fours":
        return False
    types = {p.node.input(main).dtype, p.node.y.dtype}
    return not types.isdisjoint(BYTES) and types <= {*BYTES, DType.FLOAT32}


def main_operand(node: Node) -> int | None:
    """Number of the streamed operand: variable and of the output's shape."""
    for i, v in enumerate(node.inputs):
        if v is not None and v.shape == node.y.shape and not v.is_const:
            return i
    return None


def copy_refusal(node: Node, kind: str, *, mixed: bool = False) -> str | None:
    """The reason why the node is not a copy of an operand through its expression, for epilogues of `kind`; or None.

    mixed: the operand's type may differ from the result's.
    """
    if not mixed and any(v is not None and v.dtype is not node.y.dtype for v in node.inputs):
        return "operands have other element types than the result"
    if node.as_(Elementwise).expr.uses_coords:
        return "the expression depends on coordinates"
    main = main_operand(node)
    if main is None:
        return "no operand that is not constant has the output's shape"
    return epilogue_refusal(as_epilogue(node, main), kind, source=node.input(main).dtype if mixed else None)


def copy_binding(node: Node, kind: str, layout: Layout) -> Binding:
    """The output and the copied operand in `layout`, the others as epilogues of `kind` need them."""
    main = main_operand(node)
    assert main is not None
    rest = iter(operand_layouts(as_epilogue(node, main), kind, layout))
    return Binding(tuple(layout if i == main else next(rest) for i in range(len(node.inputs))), (layout,))


def as_epilogue(node: Node, main: int) -> Node:
    """The node as a copy of operand `main` with the whole expression as epilogue; a new node outside the graph."""
    expr: Expr = node.as_(Elementwise).expr
    order = [main, *(i for i in range(len(node.inputs)) if i != main)]
    b = Builder([expr.dtypes[i] for i in order])
    refs: list[Ref] = [In(order.index(i)) for i in range(len(order))]
    view = copy.copy(node)
    view.inputs = [node.inputs[i] for i in order]
    view.epilogue = b.finish(b.inline(expr, refs))
    return view
