"""Decode attention on GPUs: few queries against many cached keys, which are split over work-groups (split-KV)."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.symbols import hint_of, is_symbolic_int
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Launch, ceil_div
from .attention_problem import JOIN, AttentionProblem

MOST_ROWS = 16  # queries that share keys
LEAST_SPAN = 32  # keys per part
GROUPS_A_UNIT = 2  # work-groups per compute unit that saturate memory
PACKS = (8, 4, 2, 1)


@register
class AttentionSplitKv(Kernel):
    """WG work-items take KEYS keys per iteration for ROWS queries; the keys of a head are split into PARTS."""

    rank = 1
    op = "Attention"
    problem = AttentionProblem
    space = {"WG": (128, 64, 256), "KEYS": (128, 64, 32), "ROWS": (1, 2, 4, 8), "PARTS": (1, 2, 4, 8, 16, 32, 64)}

    def refuse(self, p: AttentionProblem) -> str | None:
        s = p.sizes
        if is_symbolic_int(s.size) or is_symbolic_int(s.columns):
            return "the size of heads is not known beforehand"
        if not all(n > 0 for n in (s.batches, s.heads, s.queries, s.keys, s.size, s.columns)):
            return "the tensors hold no elements"
        if why := p.skinny_refusal(MOST_ROWS):
            return why
        if next(self.points(p), None) is None:
            return f"a turn of keys does not fit the {p.device.local_mem} bytes of local memory"
        return p.refusal(reads_int8=True)

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        s, wg = p.sizes, params["WG"]
        pack = _pack(p)
        if max(wg, JOIN) > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if params["ROWS"] * params["KEYS"] % wg:
            return f"{params['ROWS']} rows of {params['KEYS']} scores leave work-items idle"
        if max(s.size, s.columns) // pack > wg:
            return f"a row of {max(s.size, s.columns)} elements has more than {wg} vectors of {pack}"
        cells = params["ROWS"] * params["KEYS"] * ((s.size // pack | 1) + 2) + wg // (s.columns // pack) * s.columns
        if cells * p.cell > p.device.local_mem:
            return f"a turn of keys does not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        s = p.sizes
        rows = hint_of(s.queries * (p.sharing))
        legal = {t: None for params in self.points(p) if (t := (params["WG"], params["KEYS"], params["ROWS"]))}
        # Each block of queries reads the keys again.
        wg, keys, each = min(legal, key=lambda t: (-(-rows // t[2]), t[2], self.space["WG"].index(t[0]), t[1]))
        groups, wanted = hint_of(s.batches * s.shared) * -(-rows // each), GROUPS_A_UNIT * p.device.compute_units
        parts = (n for n in self.space["PARTS"] if n * groups >= wanted or 2 * n * LEAST_SPAN > hint_of(s.keys))
        return {"WG": wg, "KEYS": keys, "ROWS": each, "PARTS": next(parts, self.space["PARTS"][-1])}

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        if p.device.is_cpu:  # a CPU runs work-items sequentially and its local memory is ordinary memory
            return 20 * super().seconds(p, cost)
        # Keys and values are read once at memory bandwidth; a second launch combines the parts.
        params = self.defaults(p)
        walk = p.key_loop_seconds(params["KEYS"] * params["PARTS"])
        launches = 1.0 if params["PARTS"] == 1 else 2.0
        return max(cost.bytes / p.device.bandwidth, walk) + launches * p.device.launch_s

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        s, parts = p.sizes, params["PARTS"]
        defines = p.defines() | {"PACK": _pack(p), "D": s.size, "DV": s.columns, **params}
        left = p.partial_results(parts)
        span = ceil_div(s.keys, parts)
        args = {**p.args("size", "columns"), **p.scale_args(), "left": left, "span": span}
        blocks = ceil_div(s.queries * (p.sharing), params["ROWS"])
        wg = params["WG"]
        split = Launch("attention_split", args, (parts * wg, s.shared * blocks, s.batches), (wg, 1, 1), defines)
        if parts == 1:
            return [split]
        return [split, p.join_launch(left, parts, span)]


def _pack(p: AttentionProblem) -> int:
    """Elements per load of a work-item."""
    most = 8 if p.node.y.type.storage is DType.FLOAT16 else 4
    return next(n for n in PACKS if n <= most and p.sizes.size % n == 0 and p.sizes.columns % n == 0)
