"""An Attention node as kernels query it: sizes, operand strides, refusals, defines, arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...cost.cost_tables import AttentionWalk
from ...ir.constants.int8_rows import TAIL
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import always_equal, hint_of, is_symbolic_int, may_have_remainder, symbolic_max
from ...ops.attention import Attention, gives_nan, operand_view, output_axes
from ...ops.strided_view import View
from ..kernel import Params, Problem
from ..launch import STORAGE, Arg, Args, Defines


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


def sizes_of(node: Node) -> AttentionSizes:
    """The sizes of an Attention node."""
    q, k, v = (operand_view(node.as_(Attention), node.input(i).shape, i) for i in range(3))
    axes = output_axes(node.as_(Attention))
    y = View.whole(node.y.shape).transpose([axes.index(i) for i in range(4)])
    batches, heads, queries, size = q.shape
    columns = v.shape[3] - (TAIL if node.as_(Attention).scaled else 0)
    return AttentionSizes(batches, heads, k.shape[1], queries, k.shape[2], size, columns, (q, k, v, y))


class AttentionProblem(Problem):
    """An Attention node with its sizes."""

    @cached_property
    def sizes(self) -> AttentionSizes:
        """Sizes and strides, computed once."""
        return sizes_of(self.node)


def max_skinny_rows(p: AttentionProblem, floats: int) -> int:
    """The most queries for which the few-query kernels are used: `floats`, or more for int8 grouped-query caches.

    Other kernels dequantize_blocks int8 keys again for each token, so the few-query kernels pay up to more rows.
    """
    is_token = p.node.input(1).dtype is DType.INT8 and always_equal(p.sizes.queries, 1)
    return 8 * floats if is_token else floats


def key_loop_seconds(p: AttentionProblem, keys: int) -> float:
    """Lower bound of the seconds that a work-group takes for the keys of a head, `keys` per iteration.

    Costs are those of AttentionWalk. A growing cache uses its planned length, so the plan stays valid.
    """
    walk, count = AttentionWalk.of(p.device), p.sizes.keys
    keys_in_all = float(hint_of(count)) * (walk.growth if is_symbolic_int(count) else 1.0)
    return walk.turn_s * math.ceil(keys_in_all / keys)


def tiled_seconds(p: AttentionProblem, seconds: float, params: Params) -> float:
    """`seconds`, or the time of work-groups of TX times KN keys per iteration if that is more."""
    if p.device.is_cpu:  # a CPU runs work-items sequentially and its local memory is ordinary memory
        return seconds * 20
    walk = AttentionWalk.of(p.device).blocks * key_loop_seconds(p, params["TX"] * params["KN"])
    return max(seconds, walk + p.device.launch_s)


def max_queries(p: AttentionProblem) -> int:
    """Queries per work-group: few enough that every compute unit gets a work-group, and at most all of them."""
    s = p.sizes
    return max(1, min(s.queries, s.batches * s.heads * s.queries // max(1, p.device.compute_units)))


def mask_strides(node: Node) -> tuple[int, int, int, int]:
    """Element strides of the mask along b, h, s and t; 0 if it broadcasts."""
    mask = node.get(3)
    if mask is None:
        return 0, 0, 0, 0
    shape = (1,) * (4 - len(mask.shape)) + tuple(mask.shape)
    b, h, s, t = (0 if size == 1 else math.prod(shape[i + 1 :]) for i, size in enumerate(shape))
    return b, h, s, t


def attention_refusal(p: AttentionProblem, *, reads_int8: bool = False) -> str | None:
    """The reason why no attention kernel takes the node (index overflow, strided rows), or None.

    reads_int8: the kernel reads int8 keys and values.
    """
    if p.node.input(1).dtype is DType.INT8 and not reads_int8:
        return "keys and values are int8, which kernels for few queries read"
    largest = symbolic_max(v.type.count for v in (*p.node.inputs, *p.node.outputs) if v is not None)
    if largest >= 1 << 31:
        return f"a tensor of {largest!r} elements is beyond 32-bit indices"
    for name, view in zip("qkvy", p.sizes.places, strict=True):
        if view.strides[3] != 1 and view.shape[3] > 1:
            return f"the elements of a row of {name} have stride {view.strides[3]}, not 1"
    return None


def attention_defines(p: AttentionProblem) -> Defines:
    """Defines that attention kernels share."""
    node = p.node
    mask = node.get(3)
    return {
        "STORAGE": STORAGE[node.y.type.storage],
        "MASK": 0 if mask is None else 1 if mask_strides(node)[3] else 2,
        **_mask_width(node),
        "CAUSAL": bool(node.as_(Attention).causal),
        "SOFTCAP": bool(node.as_(Attention).softcap),
        "BLIND_NAN": gives_nan(node.as_(Attention), p.sizes.keys),
        "NAN_TO_ZERO": node.as_(Attention).nan_to_zero,
        **_bytes(p),
    }


def _bytes(p: AttentionProblem) -> Defines:
    """The BYTES and ALIGNED_KV defines of common.cl for int8 keys and values."""
    node = p.node
    if node.input(1).dtype is not DType.INT8:
        return {}
    if node.as_(Attention).scaled:
        return {"BYTES": 2, "ALIGNED_KV": 1}
    places = p.sizes.places[1:3]
    aligned = not any(may_have_remainder(n, 4) for view in places for n in (view.offset, *view.strides[:3]))
    return {"BYTES": 1, "ALIGNED_KV": int(aligned)}


def _mask_width(node: Node) -> Defines:
    """MASK_WIDE if the mask is float32 while all else is half."""
    mask, own = node.get(3), node.y.type.storage
    if mask is None or mask.type.storage is own:
        return {}
    assert (mask.type.storage, own) == (DType.FLOAT32, DType.FLOAT16), (mask.type, node.y.type)
    return {"MASK_WIDE": 1}


def attention_args(p: AttentionProblem, size: str = "D", columns: str = "Dv") -> Args:
    """Arguments that attention kernels share: tensors, sizes, strides.

    size, columns: the kernel's parameter names for the head size of q and k, and of v and y.
    """
    node, s = p.node, p.sizes
    mask: Arg = node.get(3) or node.x
    tensors = {"q": node.x, "k": node.input(1), "v": node.input(2), "mask": mask, "y": node.y}
    counts = {"batches": s.batches, "heads": s.heads, "sharing": s.heads // s.shared, "S": s.queries, "T": s.keys}
    steps = dict(zip(("mask_b", "mask_h", "mask_s"), mask_strides(node), strict=False))
    return {**tensors, **counts, size: s.size, columns: s.columns, **s.stride_args, **steps}


def scale_args(node: Node) -> dict[str, np.generic]:
    """Scale and soft cap in the kernel's compute type."""
    kind = np.float64 if node.y.type.storage is DType.FLOAT64 else np.float32
    return {"scale": kind(node.as_(Attention).scale), "softcap": kind(node.as_(Attention).softcap)}
