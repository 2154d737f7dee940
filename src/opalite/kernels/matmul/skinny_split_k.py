"""MatMul on GPUs with few rows on one side: bound by reading b, which work-groups split along k."""

from __future__ import annotations

from ...ir.symbols import hint_of, may_have_remainder
from ...ops.operator import Cost
from ..codegen.epilogue import rows_epilogue
from ..kernel import Params, register
from ..launch import Launch, ceil_div
from .matmul_problem import MatmulKernel, MatmulProblem, skinny_rows

MOST_ROWS = 32
_SMALLEST, _LARGEST = 64, 256  # work-items per group


@register
class MatmulSkinnySplitK(MatmulKernel):
    """MR rows by TX vectors of columns (row-major b) or TY columns (transposed b) per work-group."""

    rank = 2
    space = {"TX": (32, 8, 4), "TY": (8, 32, 64), "MR": (1, 2, 4, 8), "PACK": (4, 1), "UNROLL": (8, 4)}

    def refuse(self, p: MatmulProblem) -> str | None:
        rows = p.sizes.m
        if rows > MOST_ROWS:
            return f"a has {rows} rows; this kernel is for at most {MOST_ROWS}"
        if min(p.device.max_work_group_size, *p.device.max_work_item_sizes[:2]) < 64:
            return "the device's work-groups are smaller than 64 work-items"
        return p.refusal()

    def illegal(self, p: MatmulProblem, params: Params) -> str | None:
        tx, ty, s = params["TX"], params["TY"], p.sizes
        most, (wide, high, _) = min(_LARGEST, p.device.max_work_group_size), p.device.max_work_item_sizes
        if not _SMALLEST <= tx * ty <= most or tx > wide or ty > high:
            return f"work-groups have {_SMALLEST} to {most} work-items, here {tx * ty}"
        if params["PACK"] > 1 and may_have_remainder(s.k if s.trans_b else s.n, params["PACK"]):
            return "vectors of b do not end with its rows"
        if not skinny_rows(p, 8) <= 2 * params["MR"] <= 2 * skinny_rows(p, 8):  # correct but slower
            return "the group has more rows than the product, or too few of them"
        columns, parts = _group(p, params)
        if params["MR"] * (columns + 1) * parts * max(4, p.node.y.type.storage.size) > p.device.local_mem:
            return f"the sums do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: MatmulProblem) -> Params:
        """The widest columns that give every compute unit work; with b transposed, the longest runs."""
        s = p.sizes
        strips = hint_of(s.batches * ceil_div(s.m, skinny_rows(p, 8)))

        def order(point: Params) -> tuple[int, ...]:
            columns = _group(p, point)[0]
            idle = not s.trans_b and ceil_div(hint_of(s.n), columns) * strips < p.device.compute_units
            items = point["TX"] * point["TY"]
            return -point["MR"], -point["PACK"], -items, point["TX"] if idle else -point["TX"], -point["UNROLL"]

        return min(self.points(p), key=order)

    def seconds(self, p: MatmulProblem, cost: Cost) -> float:
        seconds = super().seconds(p, cost)
        return seconds * 20 if p.device.is_cpu else seconds

    def launch(self, p: MatmulProblem, params: Params) -> list[Launch]:
        node, s, tx, ty = p.node, p.sizes, params["TX"], params["TY"]
        epilogue = rows_epilogue(node, p.device)
        args = {"a": node.x, "b": node.input(1), "y": node.y, **s.args(), **epilogue.args}
        groups = ceil_div(s.n, _group(p, params)[0])
        grid = (groups * tx, ty, ceil_div(s.m, params["MR"]) * s.batches)
        defines = p.defines(params["PACK"]) | {"TRANS_B": s.trans_b, **params}
        return [Launch("matmul_skinny", args, grid, (tx, ty, 1), defines, epilogue.prelude)]


def _group(p: MatmulProblem, params: Params) -> tuple[int, int]:
    """(columns per work-group, parts of k)."""
    tx, ty = params["TX"], params["TY"]
    return (ty, tx) if p.sizes.trans_b else (tx * params["PACK"], ty)
