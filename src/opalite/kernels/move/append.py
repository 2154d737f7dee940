"""Append: a strided copy of what is new to where it belongs."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Node
from ...ir.place import Layout
from ...ops.append import Append
from ..base import Binding, Launch, Params, Problem, flat_binding
from ..registry import register
from .copies import Copy, row_major
from .strided_copy import StridedCopy, copy_launch


@register
class AppendCopy(StridedCopy):
    """The memory of y is that of x already."""

    op = "Append"

    def bindings(self, p: Problem) -> Sequence[Binding]:
        return (flat_binding(p.node),)

    def copies(self, node: Node, layout: Layout) -> list[Copy]:
        op, new = node.as_(Append), node.input(1)
        target = row_major(node.y.shape)
        return [Copy(new.shape, row_major(new.shape), target, 0, op.at * target[op.axis])]

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        (copy,) = self.copies(p.node, p.node.y.type.layout)
        new = p.node.input(1)
        return [copy_launch(new, p.node.y, copy, params)] if new.type.count else []
