"""Append: copies new elements to the end of a KV cache; y already shares x's memory."""

from __future__ import annotations

import math

from ...ir.graph import Node
from ...ir.place import Layout
from ...ops.append import Append
from ..kernel import Bindings, Kernel, Params, Problem, flat_binding, register
from ..launch import ELEMENT, Args, Launch
from .strided_copy import StridedCopy, copy_launch
from .strided_copy_axes import Copy, row_major


def _narrowing(p: Problem) -> str | None:
    return None if p.node.y.dtype is p.node.input(1).dtype else "what is new becomes int8"


@register
class AppendCopy(StridedCopy):
    """One position for all batch entries: a strided copy."""

    op = "Append"

    def refuse(self, p: Problem) -> str | None:
        if p.node.get(2) is not None:
            return "each entry of the batch has a position of its own"
        return _narrowing(p) or super().refuse(p)

    def bindings(self, p: Problem) -> Bindings:
        return (flat_binding(p.node),)

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        op, new = node.as_(Append), node.input(1)
        target = row_major(node.y.shape)
        return [Copy(new.shape, row_major(new.shape), target, 0, op.at * target[op.axis])]

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        (copy,) = self.copies(p.node, p.node.y.type.layout)
        new = p.node.input(1)
        return [copy_launch(new, p.node.y, copy, params)] if new.type.count else []


@register
class AppendRows(Kernel):
    """One position per batch entry: a row per work-item."""

    op = "Append"
    source = "data_movement/append_rows.cl"
    space = {"WG": (64, 1, 128, 256)}

    def refuse(self, p: Problem) -> str | None:
        return "all entries of the batch have one position" if p.node.get(2) is None else _narrowing(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        op, new, y = node.as_(Append), node.input(1), node.y
        batch, *middle = new.shape[: op.axis]
        count, inner = new.shape[op.axis], math.prod(new.shape[op.axis + 1 :])
        lines = batch * math.prod(middle) * count
        args: Args = {"x": new, "starts": node.input(2), "y": y, "lines": lines, "middle": math.prod(middle)}
        args |= {"count": count, "size": y.shape[op.axis], "inner": inner}
        defines = {"T": ELEMENT[y.type.storage.size], "CIRCULAR": int(op.circular)}
        return [Launch("append_rows", args, (lines,), (params["WG"],), defines)] if new.type.count else []
