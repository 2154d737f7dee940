"""Decode attention on CPUs: few queries against many keys of a KV cache; each key is read once, in place."""

from __future__ import annotations

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Arg, Args, Launch, Local, Scratch, ceil_div
from .attention_problem import (
    AttentionProblem,
    attention_args,
    attention_defines,
    attention_refusal,
    max_skinny_rows,
    scale_args,
    sizes_of,
)
from .flash_cpu import cpu_functions

MOST_ROWS = 16  # queries that share keys; their accumulators fit the L1 cache
ITEMS_A_CORE = 2  # work-items per core, for load balance
LEAST_SPAN = 64  # keys per part


@register
class AttentionDecodeCpu(Kernel):
    """Splits the keys of a head into PARTS if there are too few heads to balance the cores."""

    op = "Attention"
    problem = AttentionProblem
    space = {"PARTS": (1, 2, 4, 8, 16, 32)}

    def refuse(self, p: AttentionProblem) -> str | None:
        s = p.sizes
        if not p.device.is_cpu:
            return "vectors of one work-item are for CPUs"
        if s.queries * (s.heads // s.shared) > max_skinny_rows(p, MOST_ROWS):
            return f"more than {max_skinny_rows(p, MOST_ROWS)} queries share the keys of a head"
        needed = _work_bytes(p.node, p.device)
        if needed > p.device.local_mem:
            return f"heads of this size need {needed} bytes of local memory, the device has {p.device.local_mem}"
        return attention_refusal(p, reads_int8=True)

    def defaults(self, p: AttentionProblem) -> Params:
        s = p.sizes
        items, wanted = hint_of(s.batches * s.shared), ITEMS_A_CORE * p.device.compute_units
        parts = (n for n in self.space["PARTS"] if n * items >= wanted or 2 * n * LEAST_SPAN > hint_of(s.keys))
        return {"PARTS": next(parts, self.space["PARTS"][-1])}

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        # The other attention kernels stage keys and values in blocks, which doubles the cost for few queries.
        return super().seconds(p, cost) / 2

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        node, s, parts = p.node, p.sizes, params["PARTS"]
        cell = 8 if node.y.type.storage is DType.FLOAT64 else 4
        defines = attention_defines(p) | {"PACK": p.device.pack, **params}
        functions = cpu_functions(node, p.device.pack)
        rows = s.batches * s.heads * s.queries if parts > 1 else 1
        left: Arg = Scratch("left", rows * parts * (s.columns + 2) * cell)
        args: Args = {
            **attention_args(p),
            **scale_args(node),
            "left": left,
            "span": ceil_div(s.keys, parts),
            "work": Local(_work_bytes(node, p.device)),
        }
        few = Launch("attention_few", args, (parts, s.shared, s.batches), (1, 1, 1), defines, functions)
        if parts == 1:
            return [few]
        places = {k: v for k, v in s.stride_args.items() if k.startswith("y_")}
        ends: Args = {"left": left, "y": node.y, "batches": s.batches, "heads": s.heads, "S": s.queries}
        join = Launch("join_parts", {**ends, "Dv": s.columns, **places}, (s.queries, s.heads, s.batches), (1, 1, 1))
        return [few, Launch(join.entry, join.args, join.grid, join.group, defines, functions)]


def _work_bytes(node: Node, device: DeviceInfo) -> int:
    """Bytes of the kernel's scratch memory."""
    s = sizes_of(node)
    columns = ceil_div(s.columns, device.pack) * device.pack
    elements = s.queries * (s.heads // s.shared) * (s.size + columns + 2) + 4  # no scratch memory, no argument
    if node.input(1).dtype is DType.INT8:
        elements += device.pack * (s.size + columns)
    return elements * (8 if node.y.type.storage is DType.FLOAT64 else 4)
