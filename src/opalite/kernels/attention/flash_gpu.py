"""Flash attention in floats on GPUs: register tiles fed from local memory, which holds whole heads."""

from __future__ import annotations

from ...cost.cost_tables import AttentionWalk, HeadTile
from ...ir.dtype import DType
from ...ir.symbols import hint_of, is_symbolic_int
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Launch, ceil_div
from .attention_problem import AttentionProblem

KEYS_A_PART = 128  # fewest keys of a group that shares them
AMPLE = 4  # queries, and keys, of a work-item whose products cover the latency of reads
REGISTERS = 160  # floats of a work-item: scores, sums and operands


@register
class AttentionFlashGpu(Kernel):
    """RM queries and KN keys per work-item of a TX x TY work-group; exponentials go through local memory.

    TILES: whether keys and values have memory of their own. PARTS: groups that share the keys of a row.
    """

    rank = 3
    op = "Attention"
    problem = AttentionProblem
    space = {
        "TX": (8, 16, 10, 12),
        "TY": (8, 16),
        "RM": (8, 6, 4, 2),
        "KN": (6, 4, 2),
        "TILES": (2, 1),
        "PARTS": (1, 2, 4, 8),
    }

    def refuse(self, p: AttentionProblem) -> str | None:
        s = p.sizes
        if p.node.y.type.storage is DType.FLOAT64:
            return "sums are floats, not doubles"
        if is_symbolic_int(s.size) or is_symbolic_int(s.columns):
            return "the size of heads is not known beforehand"
        if not all(n > 0 for n in (s.batches, s.heads, s.queries, s.keys, s.size, s.columns)):
            return "the tensors hold no elements"
        if why := self.no_legal_point(p):
            return why
        return p.refusal()

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        tx, ty, keys = params["TX"], params["TY"], params["KN"]
        if tx * ty > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if tx * keys % 4:
            return f"{tx * keys} keys are no whole vectors"
        if (needed := _registers(p, params)) > REGISTERS:
            return f"a work-item needs {needed} floats, more than {REGISTERS}"
        if (needed := _local_bytes(p, params)) > p.device.local_mem:
            return f"whole heads need {needed} of the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        """The least estimated time among parts that pay for their second launch and tiles that keep units busy."""
        keys, legal = hint_of(p.sizes.keys), list(self.points(p))
        long = [t for t in legal if t["PARTS"] == 1 or t["PARTS"] * KEYS_A_PART <= keys] or legal
        ample = [t for t in long if min(t["RM"], t["KN"]) >= AMPLE] or long
        return min(ample, key=lambda t: _time(p, t))

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        params, walk = self.defaults(p), AttentionWalk.of(p.device)
        turns = walk.whole * p.key_loop_seconds(params["TX"] * params["KN"])
        launches = p.device.launch_s * (2 if params["PARTS"] > 1 else 1)
        return max(super().seconds(p, cost), turns + launches) * (20 if p.device.is_cpu else 1)

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        s, tx, ty = p.sizes, params["TX"], params["TY"]
        parts, span = params["PARTS"], ceil_div(s.keys, params["PARTS"])
        left = p.partial_results(parts)
        args = {**p.args("size", "columns"), **p.base_2_scales(), "left": left, "span": span}
        grid = (ceil_div(s.queries, ty * params["RM"]) * parts * tx * ty, s.heads, s.batches)
        defines = p.defines() | {"D": s.size, "DV": s.columns, "ALIGNED": int(p.row_alignment(4) == 4), **params}
        flash = Launch("attention_flash", args, grid, (tx * ty, 1, 1), defines)
        return [flash] if parts == 1 else [flash, p.join_launch(left, parts, span)]


def _registers(p: AttentionProblem, params: Params) -> int:
    """Floats of a work-item that live at once."""
    rows, keys, vectors = params["RM"], params["KN"], ceil_div(ceil_div(p.sizes.columns, 4), params["TX"])
    return int(rows * 4 * vectors + max(rows * keys + 4 * keys + 4, 4 * rows + 4 * vectors))


def _local_bytes(p: AttentionProblem, params: Params) -> int:
    """Bytes of local memory, as the kernel declares it."""
    tx, queries, keys = params["TX"], params["TY"] * params["RM"], params["TX"] * params["KN"]
    size, columns = ceil_div(p.sizes.size, 4), ceil_div(p.sizes.columns, 4)
    first, values, exponentials = keys * (size | 1), keys * columns, queries * (keys // 4 | 1)
    if params["TILES"] == 1:
        values, exponentials = exponentials, values
    vectors = queries * (size | 1) + max(first, exponentials) + values
    return int(16 * vectors + 4 * queries * (tx + 1))


def _time(p: AttentionProblem, params: Params) -> float:
    """Estimated time in multiply-adds of a compute unit: turns of its groups, padding included, and partial sums."""
    s, tile = p.sizes, HeadTile.of(p.device)
    tx, ty, rows, keys = (params[name] for name in ("TX", "TY", "RM", "KN"))
    size, columns, parts = ceil_div(s.size, 4), ceil_div(s.columns, 4), params["PARTS"]
    vectors, heads = ceil_div(columns, tx), hint_of(s.batches * s.heads)
    reads = size * (rows + keys) + keys * tx * (rows / 4 + vectors)
    products = 4 * size * rows * keys + 4 * keys * tx * rows * vectors
    turn = (products + tile.read * reads) * ceil_div(tx * ty, 32) * 32 * (1.1 if params["TILES"] == 1 else 1)
    turns = ceil_div(ceil_div(hint_of(s.keys), parts), tx * keys)
    groups = ceil_div(hint_of(s.queries), ty * rows) * heads * parts
    joined = 0 if parts == 1 else tile.join * hint_of(s.queries) * heads * parts * s.columns / p.device.compute_units
    return float(turns * turn * (ceil_div(groups, p.device.compute_units) + tile.alone) + joined)
