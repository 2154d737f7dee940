"""An Attention node as kernels query it: sizes, operand strides, refusals, defines, arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...cost.cost_tables import AttentionWalk
from ...ir.constants.int8_rows import TAIL
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import always_equal, hint_of, is_symbolic_int, may_have_remainder, symbolic_max
from ...ops.attention import Attention, gives_nan, operand_view
from ...ops.strided_view import View
from ..kernel import Params, Problem
from ..launch import STORAGE, Arg, Args, Defines, Launch, Scratch, ceil_div

JOIN = 64  # work-items that combine the parts of a query


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of an Attention node, and the layout of q, k, v and y, each as a View of axes B, H, S or T, D or Dv."""

    batches: int
    heads: int
    shared: int  # heads of k and v
    queries: int
    keys: int
    size: int  # elements of a head of q and k
    columns: int  # elements of a head of v and y
    places: tuple[View, View, View, View]

    @property
    def stride_args(self) -> dict[str, int]:
        """The arguments for PLACES of attention/blind_rows.cl."""
        steps = {name: (view.offset, *view.strides[:3]) for name, view in zip("qkvy", self.places, strict=True)}
        return {f"{name}_{k}": v for name, of in steps.items() for k, v in zip(("at", "b", "h", "s"), of, strict=True)}


class AttentionProblem(Problem):
    """An Attention node with its sizes."""

    @cached_property
    def sizes(self) -> AttentionSizes:
        """Sizes and strides, computed once."""
        node, op = self.node, self.node.as_(Attention)
        q, k, v = (operand_view(op, node.input(i).shape, i) for i in range(3))
        axes = op.out_axes
        y = View.whole(node.y.shape).transpose([axes.index(i) for i in range(4)])
        batches, heads, queries, size = q.shape
        columns = v.shape[3] - (TAIL if op.scaled else 0)
        return AttentionSizes(batches, heads, k.shape[1], queries, k.shape[2], size, columns, (q, k, v, y))

    @property
    def sharing(self) -> int:
        """Heads of q that share a head of k and v."""
        return self.sizes.heads // self.sizes.shared

    @property
    def cell(self) -> int:
        """Bytes of an accumulator."""
        return 8 if self.node.y.type.storage is DType.FLOAT64 else 4

    def skinny_refusal(self, most: int) -> str | None:
        """The reason why there are too many queries for a kernel of `most` rows, or None."""
        most = self.max_skinny_rows(most)
        return (
            f"more than {most} queries share the keys of a head" if self.sizes.queries * self.sharing > most else None
        )

    def partial_results(self, parts: int) -> Scratch:
        """Scratch memory for the results of each query in `parts` parts of the keys."""
        s = self.sizes
        rows = s.batches * s.heads * s.queries if parts > 1 else 1
        return Scratch("left", rows * parts * (s.columns + 2) * self.cell)

    def join_args(self, left: Scratch, columns: str) -> Args:
        """Arguments of the launch that combines the parts; columns: its parameter name for the head size of v."""
        node, s = self.node, self.sizes
        places = {k: v for k, v in s.stride_args.items() if k.startswith("y_")}
        ends: Args = {"left": left, "y": node.y, "batches": s.batches, "heads": s.heads, "S": s.queries}
        return {**ends, columns: s.columns, **places}

    def join_launch(self, left: Scratch, parts: int, span: int) -> Launch:
        """The launch that combines the partial results of up to `parts` parts of `span` keys on GPUs."""
        s, shared = self.sizes, self.defines()
        defines = {name: shared[name] for name in ("STORAGE", "NAN_TO_ZERO", "BLIND_NAN")}
        defines |= {"JOIN": JOIN, "PARTS": parts, "DV": s.columns}
        grid = (s.queries * JOIN, s.heads, s.batches)
        args = {**self.join_args(left, "columns"), "used": ceil_div(s.keys, span)}
        return Launch("join_split", args, grid, (JOIN, 1, 1), defines, source="attention/join_parts.cl")

    def scale_args(self) -> dict[str, np.generic]:
        """Scale and soft cap in the kernel's compute type."""
        kind, op = np.float64 if self.cell == 8 else np.float32, self.node.as_(Attention)
        return {"scale": kind(op.scale), "softcap": kind(op.softcap)}

    def base_2_scales(self) -> dict[str, np.generic]:
        """The same as floats, for exponentials in powers of two."""
        op = self.node.as_(Attention)
        return {
            "scale": np.float32(op.scale * math.log2(math.e)),
            "softcap": np.float32(op.softcap * math.log2(math.e)),
        }

    def max_skinny_rows(self, floats: int) -> int:
        """The most queries for which the few-query kernels are used: `floats`, or more for int8 grouped-query caches.

        Other kernels dequantise int8 keys again for each token, so the few-query kernels pay up to more rows.
        """
        is_token = self.node.input(1).dtype is DType.INT8 and always_equal(self.sizes.queries, 1)
        return 8 * floats if is_token else floats

    def key_loop_seconds(self, keys: int) -> float:
        """Lower bound of the seconds that a work-group takes for the keys of a head, `keys` per iteration.

        Costs are those of AttentionWalk. A growing cache uses its planned length, so the plan stays valid.
        """
        walk, count = AttentionWalk.of(self.device), self.sizes.keys
        keys_in_all = float(hint_of(count)) * (walk.growth if is_symbolic_int(count) else 1.0)
        return walk.turn_s * math.ceil(keys_in_all / keys)

    def tiled_seconds(self, seconds: float, params: Params) -> float:
        """`seconds`, or the time of work-groups of TX times KN keys per iteration if that is more."""
        if self.device.is_cpu:  # a CPU runs work-items sequentially and its local memory is ordinary memory
            return seconds * 20
        walk = AttentionWalk.of(self.device).blocks * self.key_loop_seconds(params["TX"] * params["KN"])
        return max(seconds, walk + self.device.launch_s)

    def max_queries(self) -> int:
        """Queries per work-group: few enough that every compute unit gets a work-group, and at most all of them."""
        s = self.sizes
        return max(1, min(s.queries, s.batches * s.heads * s.queries // max(1, self.device.compute_units)))

    def few_queries(self, tiles: Sequence[Params]) -> Sequence[Params]:
        """The `tiles` of at most `max_queries`; where these do not fill a wave, those of the fewest that do.

        Idle lanes cost as much as idle compute units. tiles: TX x TY work-items of a group, RM queries for each TY.
        """
        most = self.max_queries()
        filled = [t["TY"] * t["RM"] for t in tiles if t["TX"] * t["TY"] >= self.device.wave_size]
        least = min(filled, default=most)
        if most < least <= hint_of(self.sizes.queries):
            most = least
        return [t for t in tiles if t["TY"] * t["RM"] <= most] or tiles

    def row_alignment(self, most: int) -> int:
        """The largest power of two up to `most` to whose multiples of elements all rows begin and end."""
        s = self.sizes
        steps = [s.size, s.columns]
        for view in s.places:
            axes = zip(view.strides[:3], view.shape, strict=False)
            steps += [view.offset, *(step for step, size in axes if not always_equal(size, 1))]
        while any(may_have_remainder(step, most) for step in steps):
            most //= 2
        return most

    def refusal(self, *, reads_int8: bool = False) -> str | None:
        """The reason why no attention kernel takes the node (index overflow, strided rows), or None.

        reads_int8: the kernel reads int8 keys and values.
        """
        if self.node.input(1).dtype is DType.INT8 and not reads_int8:
            return "keys and values are int8, which kernels for few queries read"
        largest = symbolic_max(v.type.count for v in (*self.node.inputs, *self.node.outputs) if v is not None)
        if largest >= 1 << 31:
            return f"a tensor of {largest!r} elements is beyond 32-bit indices"
        for name, view in zip("qkvy", self.sizes.places, strict=True):
            if view.strides[3] != 1 and view.shape[3] > 1:
                return f"the elements of a row of {name} have stride {view.strides[3]}, not 1"
        return None

    def defines(self) -> Defines:
        """Defines that attention kernels share."""
        node, op, mask = self.node, self.node.as_(Attention), self.node.get(3)
        return {
            "STORAGE": STORAGE[node.y.type.storage],
            "MASK": 0 if mask is None else 1 if mask_strides(node)[3] else 2,
            **_mask_width(node),
            **{"CAUSAL": bool(op.causal), "SOFTCAP": bool(op.softcap), "NAN_TO_ZERO": op.nan_to_zero},
            "BLIND_NAN": gives_nan(op, self.sizes.keys),
            **self._bytes(),
        }

    def _bytes(self) -> Defines:
        """The BYTES and ALIGNED_KV defines of common.cl for int8 keys and values."""
        node = self.node
        if node.input(1).dtype is not DType.INT8:
            return {}
        if node.as_(Attention).scaled:
            return {"BYTES": 2, "ALIGNED_KV": 1}
        places = self.sizes.places[1:3]
        aligned = not any(may_have_remainder(n, 4) for view in places for n in (view.offset, *view.strides[:3]))
        return {"BYTES": 1, "ALIGNED_KV": int(aligned)}

    def args(self, size: str = "D", columns: str = "Dv") -> Args:
        """Arguments that attention kernels share: tensors, sizes, strides.

        size, columns: the kernel's parameter names for the head size of q and k, and of v and y.
        """
        node, s = self.node, self.sizes
        mask: Arg = node.get(3) or node.x
        tensors = {"q": node.x, "k": node.input(1), "v": node.input(2), "mask": mask, "y": node.y}
        counts = {"batches": s.batches, "heads": s.heads, "sharing": self.sharing, "S": s.queries, "T": s.keys}
        steps = dict(zip(("mask_b", "mask_h", "mask_s"), mask_strides(node), strict=False))
        return {**tensors, **counts, size: s.size, columns: s.columns, **s.stride_args, **steps}


def mask_strides(node: Node) -> tuple[int, int, int, int]:
    """Element strides of the mask along b, h, s and t; 0 if it broadcasts."""
    mask = node.get(3)
    if mask is None:
        return 0, 0, 0, 0
    shape = (1,) * (4 - len(mask.shape)) + tuple(mask.shape)
    b, h, s, t = (0 if size == 1 else math.prod(shape[i + 1 :]) for i, size in enumerate(shape))
    return b, h, s, t


def _mask_width(node: Node) -> Defines:
    """MASK_WIDE if the mask is float32 while all else is half."""
    mask, own = node.get(3), node.y.type.storage
    if mask is None or mask.type.storage is own:
        return {}
    assert (mask.type.storage, own) == (DType.FLOAT32, DType.FLOAT16), (mask.type, node.y.type)
    return {"MASK_WIDE": 1}
