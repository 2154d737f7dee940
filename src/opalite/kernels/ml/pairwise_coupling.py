"""PairwiseCoupling of class probabilities: a work-item per row."""

from __future__ import annotations

from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch

_MOST = 256  # most classes whose probabilities a work-item holds


@register
class CouplingRows(Kernel):
    """Probabilities and gradients of a row are in private memory."""

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
