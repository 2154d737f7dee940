"""Flash attention of halves on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

from ...cost.cost_tables import AttentionWalk
from ...ir.device.device_family import PTX_MMA
from ...ir.dtype import DType
from ...ir.symbols import hint_of, is_symbolic_int
from ...ops.attention import Attention
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Args, Launch, Scratch, ceil_div
from ..mma.mma_tile import MOST_ITEMS, WAVE
from .attention_problem import AttentionProblem, mask_strides

LARGEST_HEAD = 256  # accumulators of longer rows exceed the registers
KEPT = 128  # elements of the longest head whose queries stay in registers
LOOKERS = 256  # as in attention/mask_block_skip.cl
TILE = 16  # rows, terms and keys of a matrix instruction, in multiples of which kernels are padded
REGISTERS = 160  # of 255, of which addresses and operands take the rest
GROUPS_A_UNIT = 2  # work-groups per compute unit that saturate memory


@register
class AttentionFlashMma(Kernel):
    """QW x KW warps along queries and keys of one head; scores and accumulators stay in registers.

    QB: blocks of 16 queries of a warp. STAGES: iterations in local memory. PARTS: groups that share the keys of a row.
    LOOK: a launch in front scans the mask, so that key blocks hidden from all queries of a work-group are skipped.
    """

    op = "Attention"
    problem = AttentionProblem
    space = {
        "QW": (2, 1, 4),
        "KW": (2, 1, 4),
        "QB": (1, 2),
        "KEYS": (32, 16, 64),
        "STAGES": (2, 1),
        "PARTS": (1, 2, 4, 8, 16, 32, 64),
        "LOOK": (0, 1),
    }

    def refuse(self, p: AttentionProblem) -> str | None:
        node = p.node
        if PTX_MMA not in p.device.quirks:
            return "the driver builds no inline PTX with mma.sync"
        if node.y.type.storage is not DType.FLOAT16:
            return f"matrix units multiply halves, here {node.y.type.storage} is stored"
        s = p.sizes
        if is_symbolic_int(s.size) or is_symbolic_int(s.columns):
            return "the size of heads is not known beforehand"
        if max(s.size, s.columns) > LARGEST_HEAD:
            return f"heads of {s.size} and {s.columns} elements; the most are {LARGEST_HEAD}"
        if not node.as_(Attention).scale > 0:
            return f"scores are multiplied by {node.as_(Attention).scale}, not a positive number"
        if not all(n > 0 for n in (s.batches, s.heads, s.queries, s.keys, s.size, s.columns)):
            return "the tensors hold no elements"
        if next(self.points(p), None) is None:
            return f"no turn of keys and values fits the {p.device.local_mem} bytes of local memory"
        return p.refusal()

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        warps = params["QW"] * params["KW"]
        if params["LOOK"] and (not mask_strides(p.node)[3] or _is_packed(p)):
            return "there is no mask for each key, or heads share a group"
        if warps * WAVE > MOST_ITEMS:
            return f"the driver runs at most {MOST_ITEMS} work-items of this kernel in a group"
        needed = _local_bytes(p, params)
        if needed > p.device.local_mem:
            return f"keys and values need {needed} of {p.device.local_mem} bytes of local memory"
        if (needed := _registers(p, params)) > REGISTERS:
            return f"a work-item needs {needed} registers for operands and sums, more than {REGISTERS}"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        """The most queries per group that leave half of the compute units a group; otherwise warps split the keys, and
        last, groups do.

        Groups share the keys of a cache that grows in as many parts as fill the device, however short it is now.
        """
        s = p.sizes
        look, units = int(_pays_to_look(p)), p.device.compute_units
        rows, heads = (s.queries * p.sharing, s.shared) if _is_packed(p) else (s.queries, s.heads)
        keys = hint_of(s.keys)
        wide = 32 if 10 * _padded(keys, 64) > 11 * _padded(keys, 32) else 64
        tall = () if p.node.get(3) is not None or p.node.as_(Attention).causal else ((4, 1, 2, wide, 1),)
        for shape in (*tall, (4, 1, 1, wide, 1), *_SHAPES):
            point = dict(zip(("QW", "KW", "QB", "KEYS", "STAGES"), shape, strict=True)) | {"PARTS": 1, "LOOK": look}
            block = TILE * point["QB"] * point["QW"]
            groups = hint_of(s.batches * heads * ceil_div(rows, block))
            fills = point["QW"] == 1 or (2 * groups >= units and block < 2 * hint_of(rows))
            if fills and self.illegal(p, point) is None:
                break
        else:
            return super().defaults(p)
        wanted = GROUPS_A_UNIT * units // groups if 2 * groups < units else 1
        if not is_symbolic_int(s.keys):
            turns = keys // (point["KW"] * point["KEYS"])
            wanted = min(wanted, turns if hint_of(rows) <= TILE else turns // 2)  # tokens wait for memory alone
        return point | {"PARTS": max((n for n in self.space["PARTS"] if n <= wanted), default=1)}

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        arithmetic = cost.flops / (p.device.peak_flops * self.share(p.device))
        params = self.defaults(p)
        walk = p.key_loop_seconds(params["KW"] * params["KEYS"] * params["PARTS"])
        launches = 1.0 if params["PARTS"] == 1 else 2.0
        return max(arithmetic, cost.bytes / p.device.bandwidth, walk) + launches * p.device.launch_s

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        packed, parts, turn = _is_packed(p), params["PARTS"], params["KW"] * params["KEYS"]
        block, group = TILE * params["QB"] * params["QW"], WAVE * params["QW"] * params["KW"]
        sizes = {"SIZE": s.size, "COLUMNS": s.columns, "UNIT": 2 * p.row_alignment(8), "PACKED": int(packed)}
        defines = p.defines() | {"PACK": 4, **sizes, **params}
        rows, heads = (s.queries * p.sharing, s.shared) if packed else (s.queries, s.heads)
        blocks = ceil_div(rows, block)
        grid = (blocks * parts * group, heads, s.batches)
        left = p.partial_results(parts)
        span = ceil_div(ceil_div(s.keys, parts), turn) * turn
        args = {**p.args("size", "columns"), **p.base_2_scales(), "left": left, "span": span}
        launches = [Launch("attention_mma", args, grid, (group, 1, 1), defines)]
        if parts > 1:
            launches.append(p.join_launch(left, parts, span))
        if not params["LOOK"]:
            return launches
        mask, of_b, of_h, of_s = node.input(3), *mask_strides(node)[:3]
        looks = ceil_div(s.keys, LOOKERS)
        heads, batches = (n if step else 1 for n, step in ((s.heads, of_h), (s.batches, of_b)))
        turns, all_blocks = ceil_div(s.keys, turn), batches * heads * blocks
        found: Args = {"kinds": Scratch("kinds", all_blocks * turns), "turns": turns, "looks": looks}
        found |= {"seen": Scratch("seen", all_blocks * looks * ceil_div(block, 32) * 4)}
        found |= {"looks_b": heads * blocks if of_b else 0, "looks_h": blocks if of_h else 0}
        look: Args = {"mask": mask, "S": s.queries, "T": s.keys, "blocks": blocks, **found}
        look |= {"mask_b": of_b, "mask_h": of_h, "mask_s": of_s}
        launches[0] = Launch("attention_mma", {**args, **found}, grid, (group, 1, 1), defines)
        first = Launch("look_at_mask", look, (blocks * looks * LOOKERS, heads, batches), (LOOKERS, 1, 1), defines)
        return [first, *launches]


_SHAPES = (
    (4, 1, 1, 32, 1),
    (4, 1, 1, 16, 1),
    (2, 2, 1, 32, 2),
    (2, 2, 1, 16, 2),
    (2, 1, 1, 16, 1),
    (1, 4, 1, 16, 2),
    (1, 4, 1, 16, 1),
    (1, 2, 1, 16, 2),
    (1, 1, 1, 16, 2),
)
"""(QW, KW, QB, KEYS, STAGES) from many queries to few."""


def _is_packed(p: AttentionProblem) -> bool:
    """Whether a group takes the queries of all heads that share keys: few, of one or several heads."""
    return p.sharing > 1 and not is_symbolic_int(p.sizes.queries) and p.sizes.queries * p.sharing <= 4 * TILE


def _padded(size: int, to: int = TILE) -> int:
    return ceil_div(size, to) * to


def _registers(p: AttentionProblem, params: Params) -> int:
    """Registers of a work-item for queries, scores and sums."""
    size = _padded(p.sizes.size)
    kept = size // 4 if size <= KEPT else 4
    return int(params["QB"] * (kept + params["KEYS"] // 2 + _padded(p.sizes.columns) // 2))


def _local_bytes(p: AttentionProblem, params: Params) -> int:
    """Bytes of local memory, as the kernel declares it."""
    size, columns, turn = _padded(p.sizes.size), _padded(p.sizes.columns), params["KW"] * params["KEYS"]
    key, value = size // 8 + 1, columns // 8 + 1
    side, queries = turn * (key + value), TILE * params["QB"] * params["QW"] * key
    merged = (params["KW"] - 1) * params["QW"] * params["QB"] * (columns // 2 + 4) * 8
    stages = params["STAGES"]
    queries_at = stages * side if size > KEPT else side if stages == 2 else turn * key
    return int(16 * max(stages * side, queries_at + queries, merged))


def _pays_to_look(p: AttentionProblem) -> bool:
    """Whether scanning the mask may save half of the work: long sequences with one mask for all heads."""
    s, (_, of_h, _, of_t) = p.sizes, mask_strides(p.node)
    flops = 2 * s.batches * s.heads * s.queries * s.keys * (s.size + s.columns)
    return bool(of_t) and not of_h and not _is_packed(p) and hint_of(flops) > AttentionWalk.of(p.device).look
