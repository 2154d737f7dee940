"""ArgReduce: along rows, or along any axis."""

from __future__ import annotations

from ...ir.graph import Node
from ...ops.reduce import ArgReduce
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, ceil_div
from .cumulative import split_at
from .work_group_rows import ROW_SPACE, RowKernel, row_group, row_prelude, row_width


class _ArgReduce(Kernel):
    """Base class of the ArgReduce kernels."""

    op = "ArgReduce"

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.x.dtype in STORAGE else f"{p.node.x.dtype} has no order here"

    def _defines(self, node: Node, rows: bool) -> Defines:
        return {
            "STORAGE": STORAGE[node.x.type.storage],
            "LARGEST": node.as_(ArgReduce).kind == "max",
            "LAST": node.as_(ArgReduce).select_last,
            "ROWS_FORM": rows,
        }


@register
class ArgReduceRows(RowKernel, _ArgReduce):
    """Along the last axis: a work-item per row on a CPU, several per row on a GPU."""

    space = {"PACK": (2, 16, 8, 4, 1), **ROW_SPACE}

    def refuse(self, p: Problem) -> str | None:
        inner = split_at(p.node.x.shape, p.node.as_(ArgReduce).axis)[2]
        return super().refuse(p) if inner == 1 else f"elements along the axis have stride {inner}"

    def defaults(self, p: Problem) -> Params:
        rows, columns, _ = split_at(p.node.x.shape, p.node.as_(ArgReduce).axis)
        # Lanes are compared at the end, which costs more than a short row.
        pack = 1 if p.device.is_cpu and columns < p.device.native_float_width else row_width(columns, p.device)
        return {"PACK": pack, **row_group(columns, rows, p.device)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        rows, columns, _ = split_at(node.x.shape, node.as_(ArgReduce).axis)
        group = (params["WG"], params["ROWS"])
        defines = self._defines(node, rows=True) | dict(params)
        args: Args = {"x": node.x, "y": node.y, "rows": rows, "columns": columns}
        return [Launch("arg_reduce_rows", args, (group[0], rows), group, defines, row_prelude(p.device))]


@register
class ArgReduceAnyAxis(_ArgReduce):
    """A work-item for PACK adjacent lines."""

    space = {"PACK": (1, 16, 8, 4, 2)}

    def refuse(self, p: Problem) -> str | None:
        inner = split_at(p.node.x.shape, p.node.as_(ArgReduce).axis)[2]
        return "the axis is the last one" if inner == 1 else super().refuse(p)

    def illegal(self, p: Problem, params: Params) -> str | None:
        inner = split_at(p.node.x.shape, p.node.as_(ArgReduce).axis)[2]
        return "lines are fewer than the lanes of a vector" if params["PACK"] > max(1, inner) else None

    def defaults(self, p: Problem) -> Params:
        inner = split_at(p.node.x.shape, p.node.as_(ArgReduce).axis)[2]
        most = min(inner, p.device.native_float_width) if p.device.is_cpu else 1
        return {"PACK": next(point for point in (16, 8, 4, 2, 1) if point <= max(1, most))}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        outer, length, inner = split_at(node.x.shape, node.as_(ArgReduce).axis)
        defines = self._defines(node, rows=False) | dict(params)
        args: Args = {"x": node.x, "y": node.y, "outer": outer, "length": length, "inner": inner}
        return [Launch("arg_reduce_lines", args, (ceil_div(inner, params["PACK"]), outer), defines=defines)]
