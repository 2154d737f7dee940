"""Decode attention on CPUs: few queries against many keys of a KV cache; each key is read once, in place."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.symbols import hint_of
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Launch, Local, ceil_div
from .attention_problem import AttentionProblem
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
        if not p.device.is_cpu:
            return "vectors of one work-item are for CPUs"
        if why := p.skinny_refusal(MOST_ROWS):
            return why
        needed = _work_bytes(p)
        if needed > p.device.local_mem:
            return f"heads of this size need {needed} bytes of local memory, the device has {p.device.local_mem}"
        return p.refusal(reads_int8=True)

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
        defines = p.defines() | {"PACK": p.device.pack, **params}
        functions = cpu_functions(node, p.device.pack)
        left, work = p.partial_results(parts), Local(_work_bytes(p))
        args = {**p.args(), **p.scale_args(), "left": left, "span": ceil_div(s.keys, parts), "work": work}
        few = Launch("attention_few", args, (parts, s.shared, s.batches), (1, 1, 1), defines, functions)
        if parts == 1:
            return [few]
        grid = (s.queries, s.heads, s.batches)
        return [few, Launch("join_parts", p.join_args(left, "Dv"), grid, (1, 1, 1), defines, functions)]


def _work_bytes(p: AttentionProblem) -> int:
    """Bytes of the kernel's scratch memory."""
    s, pack = p.sizes, p.device.pack
    columns = ceil_div(s.columns, pack) * pack
    elements = s.queries * p.sharing * (s.size + columns + 2) + 4  # no scratch memory, no argument
    if p.node.input(1).dtype is DType.INT8:
        elements += pack * (s.size + columns)
    return elements * p.cell
