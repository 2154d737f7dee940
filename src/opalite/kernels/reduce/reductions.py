"""Base of reduction kernels: merged axes, kinds, partial results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import Layout
from ...ir.symbols import always_equal
from ...ops.reduce import KINDS, Reduce
from ..data_movement.gather import merged_axes, row_strides
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, Scratch, make_table

NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
"""The KIND define of reduce/reduction_kinds.cl."""

FLOAT_ONLY = ("l2", "logsum", "logsumexp")
PARTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Parts in which one result may be taken, for tensors that give few results."""


@dataclass(frozen=True)
class ReduceView:
    """x as [outer, length, inner], reduced along the middle axis."""

    outer: int
    length: int
    inner: int

    @classmethod
    def of(cls, node: Node, layout: Layout | None = None) -> ReduceView | None:
        """The view of a Reduce node's x in `layout` (its own by default); None if reduced axes are not adjacent."""
        shape = (layout or node.x.type.layout).storage_shape(node.x.shape)
        reduced = [a for a in node.as_(Reduce).axes if not always_equal(shape[a], 1)]
        if not reduced:
            return cls(1, 1, math.prod(shape))
        first, end = reduced[0], reduced[-1] + 1
        if any(not always_equal(shape[a], 1) for a in range(first, end) if a not in reduced):
            return None
        return cls(math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:]))


def reduce_refusal(node: Node) -> str | None:
    """The reason why no reduction kernel takes the node, or None."""
    if node.x.dtype not in STORAGE:
        return f"{node.x.dtype} has no arithmetic"
    if node.as_(Reduce).kind in FLOAT_ONLY and not node.x.dtype.is_float:
        return f"{node.as_(Reduce).kind} of {node.x.dtype} needs floats"
    return None


def reduced_count(node: Node) -> int:
    """Elements per result."""
    return math.prod(node.x.shape[a] for a in node.as_(Reduce).axes)


def reduce_defines(node: Node) -> Defines:
    """Defines that all reduction kernels share."""
    x, y = node.x.type, node.y.type
    kind = NUMBERS[node.as_(Reduce).kind]
    if x.dtype is DType.FLOAT32 and {x.storage, y.storage} == {DType.FLOAT16, DType.FLOAT32}:
        return {"STORAGE": STORAGE[y.storage], "KIND": kind, "READS": 1 if x.storage is DType.FLOAT16 else 2}
    return {"STORAGE": STORAGE[x.storage], "KIND": kind}


def useful_parts(node: Node, results: int, length: int, least: int, device: DeviceInfo) -> int:
    """Parts per reduction that occupy every core, each of at least `least` of the `length` elements."""
    if node.as_(Reduce).kind == "logsumexp":
        return 1
    wanted = min(2 * device.compute_units // max(results, 1), length // least)
    return max(p for p in PARTS if p <= max(1, wanted))


def parts_refusal(node: Node, parts: int) -> str | None:
    """The reason why results cannot be computed in so many parts, or None."""
    if parts > 1 and node.as_(Reduce).kind == "logsumexp":
        return "logsumexp needs the maximum of the whole before it sums"
    return None


def partial_results(node: Node, results: int) -> Scratch:
    """Scratch memory for `results` partial results in the kernels' compute type."""
    return Scratch("partial", results * max(4, node.x.type.storage.size))


@register
class ReduceAnyAxes(Kernel):
    """Any pattern of kept and reduced axes."""

    source = "reduce/reduce_any_axes.cl"
    rank = 1
    op = "Reduce"
    space = {}

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return i == 0 or stored is wanted

    def refuse(self, p: Problem) -> str | None:
        if p.node.epilogue is not None:
            return "this kernel takes no epilogue"
        return reduce_refusal(p.node)

    def defaults(self, p: Problem) -> Params:
        return {}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        shape, strides, axes = node.x.shape, row_strides(node.x.shape), node.as_(Reduce).axes
        kept = [a for a in range(len(shape)) if a not in axes]
        kept_rows = merged_axes([shape[a] for a in kept], [strides[a] for a in kept])
        rows = merged_axes([shape[a] for a in axes], [strides[a] for a in axes])
        run, step = rows[-1]
        runs, results = math.prod(size for size, _ in rows[:-1]), node.y.type.count
        args: Args = {"x": node.x, "y": node.y, "kept": make_table(kept_rows), "kept_axes": len(kept_rows)}
        args |= {"reduced": make_table(rows), "reduced_axes": len(rows) - 1, "results": results, "runs": runs}
        args |= {"run": run, "step": step, "count": reduced_count(node)}
        return [Launch("reduce_strided", args, (results,), defines=reduce_defines(node) | {"PACK": 1})]
