"""TreeEnsemble on row-major tensors: work-items evaluate some rows tree by tree; few rows split the trees."""

from __future__ import annotations

import numpy as np

from ...ir.dtype import DType
from ...ops.tree_ensemble import MISSING_IS_YES, TreeEnsemble
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, Scratch, ceil_div

_KINDS = {"sum": 0, "average": 0, "min": 1, "max": 2}


@register
class TreeRows(Kernel):
    """Work-items take ROWS rows at a time through their trees, EACH times."""

    op = "TreeEnsemble"
    space = {"ROWS": (8, 1, 2, 4, 16), "EACH": (16, 1, 4, 64), "PARTS": (1, 2, 4, 16, 64)}

    def refuse(self, p: Problem) -> str | None:
        computed = [v.producer for v in p.node.inputs[1:] if v is not None and v.data is None]
        return "the trees are not constant" if computed else None

    def defaults(self, p: Problem) -> Params:
        rows, trees = p.node.x.shape[0], p.node.input(3).type.count
        if not p.device.is_cpu:
            wanted = 64 * 32 * p.device.compute_units  # work-items that saturate a GPU
            return {"ROWS": 1, "EACH": 1, "PARTS": max(1, min(trees // 4, 64, wanted // max(1, rows)))}
        lanes = 8 if rows >= 8 else max(1, 1 << (rows.bit_length() - 1))
        each = max(1, min(16, rows // (lanes * 4 * p.device.compute_units)))
        groups = ceil_div(rows, lanes * each)
        steps = rows * trees * int(p.node.as_(TreeEnsemble).depth)  # a part must be worth its launch overhead
        parts = max(1, min(p.device.compute_units // max(1, groups), trees, steps // 2000))
        return {"ROWS": lanes, "EACH": each, "PARTS": parts}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, limits, nodes, roots, leaves, targets, weights = (node.input(i) for i in range(7))
        rows, features = x.shape
        flags = np.asarray(nodes.data)[:, 1]
        inner = flags[np.asarray(nodes.data)[:, 2] != np.arange(len(flags))] & 7
        rule = int(inner[0]) if inner.size and (inner == inner[0]).all() else -1 if inner.size else 0
        trees, columns = roots.type.count, int(node.as_(TreeEnsemble).columns)
        parts = max(1, min(params["PARTS"], trees))
        defines = {"STORAGE": STORAGE[x.type.storage], "RULE": rule, "MISSING": bool((flags & MISSING_IS_YES).any())}
        defines |= {"KIND": _KINDS[node.as_(TreeEnsemble).aggregate], "ROWS": params["ROWS"], "WHOLE": parts == 1}
        double = x.type.storage is DType.FLOAT64
        number = np.float64 if double else np.float32
        scale = number(1 / max(1, trees) if node.as_(TreeEnsemble).aggregate == "average" else 1)
        sums = Scratch("sums", max(1, parts * rows * columns) * (8 if double else 4))
        args: Args = {"x": x, "limits": limits, "nodes": nodes, "roots": roots, "leaves": leaves}
        args |= {"targets": targets, "weights": weights, "y": node.y, "sums": sums, "rows": rows, "features": features}
        args |= {"trees": trees, "columns": columns, "parts": parts, "each": params["EACH"], "scale": scale}
        grid = (ceil_div(rows, params["ROWS"] * params["EACH"]), parts)
        launches = [Launch("tree_ensemble", args, grid, defines=defines)]
        if parts > 1:
            count = rows * columns
            parts_args = {"sums": sums, "y": node.y, "count": count, "parts": parts, "scale": scale}
            launches.append(Launch("tree_parts", parts_args, (count,), defines=defines))
        return launches
