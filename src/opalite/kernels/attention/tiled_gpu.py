"""Tiled attention on GPUs: a work-group holds the scores of some queries and keys in local memory. Takes every node."""

from __future__ import annotations

from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Launch, ceil_div
from .attention_problem import AttentionProblem

CHUNK = 32  # elements of a head in local memory at once
MOST_CHUNKS = 4  # blocks of output columns that a work-group keeps in registers


@register
class AttentionTiledGpu(Kernel):
    """RM queries and KN keys per work-item of a TX x TY work-group."""

    rank = 2
    op = "Attention"
    problem = AttentionProblem
    space = {"TX": (16, 8, 32), "TY": (16, 8, 4, 1), "RM": (2, 4, 1), "KN": (2, 4, 1)}

    def refuse(self, p: AttentionProblem) -> str | None:
        return p.refusal()

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        tx, ty = params["TX"], params["TY"]
        if tx * ty > p.device.max_work_group_size or ty > p.device.max_work_item_sizes[1]:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        queries, keys = ty * params["RM"], tx * params["KN"]
        cells = CHUNK * (queries + 1) + max(CHUNK * (keys + 1), keys * (CHUNK + 1)) + queries * (keys + 1)
        if cells * p.cell > p.device.local_mem:
            return f"the blocks do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        legal = list(self.points(p))
        if p.device.is_cpu:  # on a CPU a work-group is a loop on one core, which barriers split
            return min(legal, key=lambda t: t["TX"] * t["TY"] * t["RM"] * t["KN"])
        return max(p.few_queries(legal), key=lambda t: (t["TY"] * t["RM"] * t["TX"] * t["KN"], t["TX"] * t["TY"]))

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        return p.tiled_seconds(super().seconds(p, cost), self.defaults(p))

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        s = p.sizes
        tx, ty = params["TX"], params["TY"]
        chunks = min(MOST_CHUNKS, max(1, ceil_div(s.columns, CHUNK)))
        parts = max(1, ceil_div(s.columns, chunks * CHUNK))
        args = {**p.args(), **p.scale_args(), "parts": parts}
        grid = (ceil_div(s.queries, ty * params["RM"]) * tx, s.heads * ty, s.batches * parts)
        defines = p.defines() | {"PACK": 1, "DC": CHUNK, "CHUNKS": chunks, **params}
        return [Launch("attention_tile", args, grid, (tx, ty, 1), defines)]
