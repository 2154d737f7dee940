"""Patch: the only way a pass edits a Graph.

A rule returns a Patch or a string that says why the rule does not apply. `apply_patches` checks that every replaced
value keeps its dtype and shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ..errors import CheckError
from ..lazy_dataclass import dataclass
from .graph import Graph, Node, Value


@dataclass
class Patch:
    """Nodes to remove, nodes to add, and values to replace: each use of a key of `replace` reads its value instead."""

    remove: Sequence[Node] = ()
    add: Sequence[Node] = ()
    replace: dict[Value, Value] = field(default_factory=dict)

    @classmethod
    def replacing(cls, node: Node, *made: Node, also: Sequence[Node] = ()) -> Patch:
        """Replace `node` by `made`, whose last node computes the output of `node`; also remove the nodes `also`."""
        return cls([*also, node], made, {node.y: made[-1].y})


def apply_patches(graph: Graph, patches: Sequence[Patch], rule: str) -> None:
    """Apply patches that touch disjoint nodes. CheckError names `rule` if a replacement changes a type.

    New nodes are inserted at the last node that they replace. One sort at the end restores execution order.
    """
    if not patches:
        return
    replaced: dict[Value, Value] = {}
    removed: set[Node] = set()
    added_at: dict[Node, list[Node]] = {}
    appended: list[Node] = []
    position = {node: i for i, node in enumerate(graph.nodes)}
    for patch in patches:
        for old, new in patch.replace.items():
            if not old.type.fits(new.type):
                raise CheckError(f"rule '{rule}' replaces {old!r} by {new!r}: a replacement must keep dtype and shape")
            replaced[old] = graph.adopt(new)
        for node in patch.add:
            for v in (*node.inputs, *node.outputs):
                if v is not None:
                    graph.adopt(v)
        clash = removed.intersection(patch.remove)
        if clash:
            raise CheckError(f"rule '{rule}' removes {next(iter(clash)).label} twice in one sweep")
        removed.update(patch.remove)
        if patch.add:
            if patch.remove:
                added_at.setdefault(max(patch.remove, key=position.__getitem__), []).extend(patch.add)
            else:
                appended.extend(patch.add)

    def current(v: Value) -> Value:
        while v in replaced:
            v = replaced[v]
        return v

    nodes: list[Node] = []
    for node in graph.nodes:
        if node not in removed:
            nodes.append(node)
        nodes.extend(added_at.get(node, ()))
    nodes.extend(appended)
    for node in nodes:
        node.inputs = [None if v is None else current(v) for v in node.inputs]
        for out in node.outputs:
            out.producer = node
    graph.outputs = [current(v) for v in graph.outputs]
    graph.nodes = nodes
    graph.sort()
    graph.prune()
