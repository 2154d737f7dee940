"""PairwiseDistance, a tile of rows by adjacent columns per work-item, and PairwiseCoupling of class probabilities."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ops.pairwise_distance import PairwiseDistance
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, ceil_div


@register
class DistanceTile(Kernel):
    """Any sizes; columns that fill no vector are computed one at a time."""

    op = "PairwiseDistance"
    source = "ml/pairwise_distance.cl"
    space = {"PACK": (4, 1, 8, 16), "ROWS": (4, 1, 2, 8)}

    def defaults(self, p: Problem) -> Params:
        rows, columns = p.node.y.shape
        lanes = max(4, min(16, p.device.native_float_width)) if p.device.is_cpu else 4
        if p.node.x.type.storage is DType.FLOAT64:
            lanes = max(2, lanes // 2)
        while lanes > 1 and columns < lanes:
            lanes //= 2
        return {
            "PACK": lanes,
            "ROWS": 8 if p.device.is_cpu and rows >= 8 else min(4, 1 << (max(1, rows).bit_length() - 1)),
        }

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        rows, features = node.x.shape
        columns = node.y.shape[1]
        defines = {"STORAGE": STORAGE[node.x.type.storage], "POWER": int(node.as_(PairwiseDistance).power), **params}
        grid = (ceil_div(columns, params["PACK"]), ceil_div(rows, params["ROWS"]))
        args: Args = {"x": node.x, "c": node.input(1), "y": node.y, "rows": rows, "features": features}
        args |= {"columns": columns}
        return [Launch("distance_tile", args, grid, defines=defines)]


_MOST = 256  # most classes whose probabilities a work-item holds


@register
class CouplingRows(Kernel):
    """Probabilities and gradients of a row are in private memory."""

    source = "ml/pairwise_coupling.cl"
    op = "PairwiseCoupling"
    space = {}

    def refuse(self, p: Problem) -> str | None:
        k = p.node.y.shape[1]
        return None if k <= _MOST else f"{k} classes are more than the {_MOST} that fit private memory"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        rows, k = p.node.y.shape
        defines = {"STORAGE": STORAGE[p.node.x.type.storage], "K": k}
        args: Args = {"r": p.node.x, "y": p.node.y, "rows": rows, "rounds": max(100, k)}
        return [Launch("pairwise_coupling", args, (rows,), defines=defines)]
