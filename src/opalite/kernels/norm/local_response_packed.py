"""LocalResponseNorm on channel-packed tensors; windows include the adjacent blocks."""

from __future__ import annotations

import math

from ...ir.place import packed
from ...ops.local_response import LocalResponseNorm, neighbours
from ..codegen.epilogue import epilogue_refusal, operand_layouts, packed_epilogue
from ..filter_window import PACKED_TYPES, block_size
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, ceil_div
from .local_response_row_major import response_args, response_text

LANES = "0123456789abcdef"


def window_text(size: int, pack: int) -> str:
    """Source of window_sum: lane c sums channels c - before to c + behind of three consecutive blocks.

    Each channel offset of the window is a vector composed of two adjacent blocks. Windows must stay in the three
    blocks.
    """
    before, behind = neighbours(size)
    terms = ["here"]
    for shift in (*range(-before, 0), *range(1, behind + 1)):
        low, high = ("before", "here") if shift < 0 else ("here", "behind")
        whole = [f"{name}.s{lane}" for name in (low, high) for lane in LANES[:pack]]
        begin = shift if shift > 0 else pack + shift
        terms.append(f"(ACCV)({', '.join(whole[begin : begin + pack])})")
    lines = "".join(f"    sum += {term};\n" for term in terms[1:])
    return (
        "static inline ACCV window_sum(ACCV before, ACCV here, ACCV behind) {\n"
        f"    ACCV sum = {terms[0]};\n{lines}    return sum;\n}}\n"
    )


@register
class LocalResponsePacked(Kernel):
    """NCHWc to NCHWc; windows extend at most one block to either side."""

    op = "LocalResponseNorm"
    space = {"EACH": (1, 4, 8, 16, 32), "DEEP": (1, 4, 16)}

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if node.x.type.rank not in (3, 4, 5):
            return f"a tensor of rank {node.x.type.rank} has no channels to pack"
        if node.x.dtype not in PACKED_TYPES:
            return f"channel-packed tensors do not hold {node.x.dtype}"
        size = node.as_(LocalResponseNorm).size
        if max(neighbours(size)) > block_size(node, p.device):
            return f"windows of {size} channels reach beyond the neighbouring blocks of {block_size(node, p.device)}"
        return epilogue_refusal(node, "packed")

    def bindings(self, p: Problem) -> Bindings:
        y = packed(p.device.pack)
        return (Binding((y, *operand_layouts(p.node, "packed", y)), (y,)),)

    def defaults(self, p: Problem) -> Params:
        return {"EACH": 16, "DEEP": 16} if p.device.is_cpu else {"EACH": 1, "DEEP": 1}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        batch, channels, *rest = node.x.shape
        pack, spatial = block_size(node, p.device), math.prod(rest)
        blocks, each, deep = ceil_div(channels, pack), params["EACH"], params["DEEP"]
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": node.x, "y": node.y, "batch": batch, "blocks": blocks, "channels": channels}
        args |= {"spatial": spatial, "each": each, "deep": deep, **response_args(node), **epilogue.args}
        defines = {"STORAGE": STORAGE[node.x.type.storage], "PACK": pack, "MASK": channels % pack != 0}
        prelude = epilogue.prelude + response_text(node, p.device, (pack,), epilogue.prelude)
        prelude += window_text(node.as_(LocalResponseNorm).size, pack)
        grid = (ceil_div(spatial, each), ceil_div(blocks, deep), batch)
        return [Launch("local_response_packed", args, grid, defines=defines, prelude=prelude)]
