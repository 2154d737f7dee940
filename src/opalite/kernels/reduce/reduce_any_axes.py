"""Reduce over any axes, one work-item per result; takes the nodes that faster kernels refuse."""

from __future__ import annotations

import math

from ...ops.reduce import Reduce
from ..data_movement.gather import merged_axes, row_strides
from ..kernel import Kernel, Params, Problem, register
from ..launch import Args, Launch, make_table
from .reduction_view import reduce_defines, reduce_refusal, reduced_count


@register
class ReduceAnyAxes(Kernel):
    """Any pattern of kept and reduced axes."""

    rank = 1
    op = "Reduce"
    space = {}

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
