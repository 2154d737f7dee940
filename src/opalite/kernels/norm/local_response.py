"""LocalResponseNorm on row-major tensors, vectors of adjacent positions, and on channel-packed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...cost.cost_tables import Movement
from ...expr.trace_function import trace
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import packed
from ...ops.local_response import LocalResponseNorm, neighbours
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_binding, epilogue_refusal, packed_epilogue
from ..codegen.expression_code import generate
from ..codegen.vector_types import compute_type
from ..filter_window import PACKED_TYPES, block_size
from ..kernel import Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, ceil_div


def response_text(node: Node, device: DeviceInfo, widths: Sequence[int], present: str) -> str:
    """Source of response_WIDTH(d): d to the power of -beta. `present`: preceding text with its helpers."""
    dtype = DType.FLOAT64 if node.x.type.storage is DType.FLOAT64 else DType.FLOAT32
    expr = trace(lambda d: d.call("pow", -float(node.as_(LocalResponseNorm).beta)), dtype)
    text = ""
    for width in sorted(set(widths)):
        t = compute_type(dtype, width)
        code = generate(expr, width, ["d"], device=device)
        text += "".join(h for h in code.helpers.values() if h not in present)
        text += f"static inline {t} response_{width}({t} d) {{\n{code.body()}    return {code.result};\n}}\n"
    return text


def response_args(node: Node) -> Args:
    """alpha / size and bias in the kernel's compute type."""
    op = node.as_(LocalResponseNorm)
    number = np.float64 if node.x.type.storage is DType.FLOAT64 else np.float32
    return {"alpha": number(float(op.alpha) / op.size), "bias": number(float(op.bias))}


@register
class LocalResponseFlat(Kernel):
    """Any rank from 2 on, any size."""

    source = "norm/local_response_row_major.cl"
    op = "LocalResponseNorm"
    space = {"PACK": (1, 16, 8, 4, 2), "EACH": (1, 4, 16, 64)}

    def refuse(self, p: Problem) -> str | None:
        return epilogue_refusal(p.node, "packed")

    def defaults(self, p: Problem) -> Params:
        if not p.device.is_cpu:
            return {"PACK": 1, "EACH": 1}
        return {"PACK": max(4, min(16, p.device.native_float_width)), "EACH": 64}

    def seconds(self, p: Problem, cost: Cost) -> float:
        """Positions that fill no vector are computed one at a time."""
        spatial = math.prod(p.node.x.shape[2:])
        slow = Movement.of(p.device).gathered_lanes if spatial < p.device.native_float_width else 1.0
        return super().seconds(p, Cost(slow * cost.flops, cost.bytes))

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        batch, channels, *rest = node.x.shape
        spatial, pack, each = math.prod(rest), params["PACK"], params["EACH"]
        epilogue = packed_epilogue(node, p.device)
        before, behind = neighbours(node.as_(LocalResponseNorm).size)
        args: Args = {"x": node.x, "y": node.y, "batch": batch, "channels": channels, "spatial": spatial}
        args |= {"before": before, "behind": behind, "each": each, **response_args(node), **epilogue.args}
        defines = {"STORAGE": STORAGE[node.x.type.storage], "PACK": pack}
        prelude = epilogue.prelude + response_text(node, p.device, (1, pack), epilogue.prelude)
        grid = (ceil_div(spatial, pack), ceil_div(channels, each), batch)
        return [Launch("local_response_flat", args, grid, defines=defines, prelude=prelude)]


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

    source = "norm/local_response_packed.cl"
    op = "LocalResponseNorm"
    space = {"EACH": (1, 4, 8, 16, 32), "DEEP": (1, 4, 16)}
    untuned = {"EACH": 16, "DEEP": 16}, {"EACH": 1, "DEEP": 1}

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
        return (epilogue_binding(p.node, "packed", packed(p.device.pack)),)

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
