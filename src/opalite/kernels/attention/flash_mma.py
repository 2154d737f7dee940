"""Flash attention of halves on NVIDIA's matrix units, through inline PTX."""

from __future__ import annotations

import math

import numpy as np

from ...cost.cost_tables import AttentionWalk
from ...ir.device.device_family import PTX_MMA
from ...ir.dtype import DType
from ...ir.symbols import hint_of
from ...ops.attention import Attention
from ...ops.operator import Cost
from ..kernel import Kernel, Params, register
from ..launch import Args, Launch, Scratch, ceil_div
from ..mma.mma_tile import MOST_ITEMS, ROWS, WAVE
from .attention_problem import AttentionProblem, mask_strides

LARGEST_HEAD = 128  # accumulators of longer rows exceed the registers
_MANY = 4  # work-groups per compute unit from which a partly filled last wave costs little
LOOKERS = 256  # as in attention/mask_block_skip.cl


@register
class AttentionFlashMma(Kernel):
    """QW x KW warps along queries and keys of one head; scores and accumulators stay in registers.

    LOOK: a launch in front scans the mask, so that key blocks hidden from all queries of a work-group are skipped.
    """

    op = "Attention"
    problem = AttentionProblem
    space = {"QW": (2, 1, 4), "KW": (2, 1, 4), "KEYS": (32, 16, 64), "LOOK": (0, 1)}

    def refuse(self, p: AttentionProblem) -> str | None:
        node = p.node
        if PTX_MMA not in p.device.quirks:
            return "the driver builds no inline PTX with mma.sync"
        if node.y.type.storage is not DType.FLOAT16:
            return f"matrix units multiply halves, here {node.y.type.storage} is stored"
        s = p.sizes
        if s.size % 32 or s.size > LARGEST_HEAD or s.columns != s.size:
            return f"heads of {s.size} and {s.columns} elements; wanted are equal multiples of 32 up to {LARGEST_HEAD}"
        if node.as_(Attention).softcap:
            return "scores are capped"
        if not all(n > 0 for n in (s.batches, s.heads, s.queries, s.keys)):
            return "the tensors hold no elements"
        for name, view in zip("qkvy", s.places, strict=True):
            if any(step % 8 for step in (view.offset, *view.strides[:3])):
                return f"rows of {name} begin at positions that are not multiples of 8 elements: {view}"
        if next(self.points(p), None) is None:
            return f"no turn of keys and values fits the {p.device.local_mem} bytes of local memory"
        return p.refusal()

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        warps, size = params["QW"] * params["KW"], p.sizes.size
        if params["LOOK"] and not mask_strides(p.node)[3]:
            return "there is no mask for each key"
        if warps * WAVE > MOST_ITEMS:
            return f"the driver runs at most {MOST_ITEMS} work-items of this kernel in a group"
        turns, sums = 8 * params["KW"] * params["KEYS"] * size, 4 * ROWS * warps * (size + 4)
        if max(turns, sums) + 8 * ROWS * warps > p.device.local_mem:
            return f"two turns of keys and values do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        """As many queries per group as leave each compute unit a group; otherwise warps split the keys.

        Iterations of 64 keys use more registers: two groups per unit instead of three. With few groups that is slower
        (18.1 us instead of 13.0 at 384 keys).
        """
        s = p.sizes
        look = int(_pays_to_look(p))
        for queries, keys, each in ((4, 1, 64), (4, 1, 32), (2, 2, 32), (2, 2, 16), (1, 4, 16), (1, 1, 16)):
            point = {"QW": queries, "KW": keys, "KEYS": each, "LOOK": look}
            groups = s.batches * s.heads * ceil_div(s.queries, ROWS * queries)
            fills = queries == 1 or groups >= p.device.compute_units * (_MANY if each == 64 else 1)
            if fills and self.illegal(p, point) is None:
                return point
        return super().defaults(p)

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        arithmetic = cost.flops / (p.device.peak_flops * self.share(p.device))
        params = self.defaults(p)
        walk = p.key_loop_seconds(params["KW"] * params["KEYS"])
        return max(arithmetic, cost.bytes / p.device.bandwidth, walk) + p.device.launch_s

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        group = WAVE * params["QW"] * params["KW"]
        scale = np.float32(node.as_(Attention).scale * math.log2(math.e))
        defines = p.defines() | {"PACK": 4, "D": s.size, **params}
        del defines["SOFTCAP"]
        grid = (ceil_div(s.queries, ROWS * params["QW"]) * group, s.heads, s.batches)
        args = {**p.args("size", "columns"), "scale": scale}
        if not params["LOOK"]:
            return [Launch("attention_mma", args, grid, (group, 1, 1), defines)]
        mask, of_b, of_h, of_s = node.input(3), *mask_strides(node)[:3]
        blocks, looks = ceil_div(s.queries, ROWS * params["QW"]), ceil_div(s.keys, LOOKERS)
        heads, batches = (n if step else 1 for n, step in ((s.heads, of_h), (s.batches, of_b)))
        turns, all_blocks = ceil_div(s.keys, params["KW"] * params["KEYS"]), batches * heads * blocks
        found: Args = {"kinds": Scratch("kinds", all_blocks * turns), "turns": turns, "looks": looks}
        found |= {"seen": Scratch("seen", all_blocks * looks * 8)}
        found |= {"looks_b": heads * blocks if of_b else 0, "looks_h": blocks if of_h else 0}
        look: Args = {"mask": mask, "S": s.queries, "T": s.keys, "blocks": blocks, **found}
        look |= {"mask_b": of_b, "mask_h": of_h, "mask_s": of_s}
        return [
            Launch("look_at_mask", look, (blocks * looks * LOOKERS, heads, batches), (LOOKERS, 1, 1), defines),
            Launch("attention_mma", {**args, **found}, grid, (group, 1, 1), defines),
        ]


def _pays_to_look(p: AttentionProblem) -> bool:
    """Whether scanning the mask may save half of the work: long sequences with one mask for all heads."""
    s, (_, of_h, _, of_t) = p.sizes, mask_strides(p.node)
    flops = 2 * s.batches * s.heads * s.queries * s.keys * (s.size + s.columns)
    return bool(of_t) and not of_h and hint_of(flops) > AttentionWalk.of(p.device).look
