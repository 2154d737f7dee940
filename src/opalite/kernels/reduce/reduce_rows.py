"""Reduce along trailing axes: each reduced line is a row."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import FLAT
from ..codegen.epilogue import Epilogue, epilogue_binding, epilogue_refusal, rows_epilogue
from ..kernel import Bindings, Kernel, Params, Problem, register
from ..launch import Arg, Args, Launch, ceil_div
from .reductions import (
    PARTS,
    ReduceView,
    partial_results,
    parts_refusal,
    reduce_defines,
    reduce_refusal,
    reduced_count,
    useful_parts,
)
from .work_group_rows import ROW_SPACE, row_group, row_group_refusal, row_prelude, row_width

LEAST_PART = 16384  # fewest elements per part that are worth a second launch


@register
class ReduceRows(Kernel):
    """A work-item per row on a CPU, several per row on a GPU; long rows in PARTS."""

    op = "Reduce"
    space = {"PACK": (2, 16, 8, 4, 1), **ROW_SPACE, "PARTS": PARTS}

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return i == 0 or stored is wanted

    def refuse(self, p: Problem) -> str | None:
        view = ReduceView.of(p.node, FLAT)
        if view is None or view.inner > 1:
            return "the reduced axes are not the last ones"
        return reduce_refusal(p.node) or epilogue_refusal(p.node, "rows")

    def bindings(self, p: Problem) -> Bindings:
        return (epilogue_binding(p.node, "rows", FLAT),)

    def illegal(self, p: Problem, params: Params) -> str | None:
        return row_group_refusal(params, p.device) or parts_refusal(p.node, params["PARTS"])

    def defaults(self, p: Problem) -> Params:
        view = self._view(p.node)
        parts = useful_parts(p.node, view.outer, view.length, LEAST_PART, p.device)
        group = row_group(view.length // parts, view.outer * parts, p.device)
        return {"PACK": row_width(view.length // parts, p.device), **group, "PARTS": parts}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        view = self._view(node)
        rows, columns, parts = view.outer, view.length, params["PARTS"]
        epilogue = rows_epilogue(node, p.device)
        width = node.y.shape[-1] if node.y.shape else 1
        defines = {k: v for k, v in params.items() if k != "PARTS"} | reduce_defines(node)
        group = (params["WG"], params["ROWS"])

        def make(x: Arg, y: Arg, parts: int, columns: int, passes: dict[str, bool], end: Epilogue) -> Launch:
            args: Args = {"x": x, "y": y, "rows": rows, "columns": columns, "parts": parts}
            args |= {"span": ceil_div(columns, parts)}
            args |= {"count": reduced_count(node), "width": width, **end.args}
            grid = (group[0], rows * parts)
            prelude = row_prelude(p.device) + end.prelude
            return Launch("reduce_rows", args, grid, group, defines | passes, prelude)

        if parts == 1:
            return [make(node.x, node.y, 1, columns, {}, epilogue)]
        partial = partial_results(node, rows * parts)
        return [
            make(node.x, partial, parts, columns, {"LAST_PASS": False}, Epilogue()),
            make(partial, node.y, 1, parts, {"FIRST_PASS": False}, epilogue),
        ]

    @staticmethod
    def _view(node: Node) -> ReduceView:
        view = ReduceView.of(node, FLAT)
        assert view is not None, f"{node.label} was refused"
        return view
