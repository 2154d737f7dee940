"""Row-wise operators: products, normalizations and expressions, which do not depend on the order of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from heapq import heappop, heappush

from ...ir.graph import Node, Value
from ...ir.symbols import always_equal
from ...ir.tensor_type import Shape
from ...ops.data_movement import Reshape
from ...ops.elementwise import Elementwise
from ...ops.matmul import MatMul
from ...ops.normalize import TRAILING, Normalize
from ..rewrite_driver import Added, Sweep, value_like


def rows_from(node: Node, sweep: Sweep) -> dict[Value, Node]:
    """The output of `node` and all values computed row-wise from it, with their nodes, in execution order."""
    inside: dict[Value, Node] = {node.y: node}
    waiting: list[int] = []  # positions of readers, a heap
    seen: set[int] = set()

    def wait(v: Value) -> None:
        for reader in sweep.uses.get(v, ()):
            if (at := sweep.position[reader]) not in seen:
                seen.add(at)
                heappush(waiting, at)

    wait(node.y)
    while waiting:
        reader = sweep.graph.nodes[heappop(waiting)]
        if is_by_row(reader, inside):
            inside[reader.y] = reader
            wait(reader.y)
    return inside


def readers_behind(inside: Mapping[Value, Node], sweep: Sweep) -> list[tuple[Value, Node]] | None:
    """Values of `inside` (`rows_from`) with each reader outside; None if one is an output of the graph."""
    if any(v in sweep.exposed for v in inside):
        return None
    return [(v, user) for v in inside for user in sweep.uses.get(v, ()) if user.outputs[0] not in inside]


def rows_before(inside: Mapping[Value, Node], mover: Node, added: Added) -> dict[Value, Value]:
    """The results of the nodes of `inside` (`rows_from`) on the rows before `mover`; new nodes are in `added`."""
    known: dict[Value, Value] = {mover.y: mover.x}
    for v, node in inside.items():
        if isinstance(node.op, Reshape):
            known[v] = known[node.x]
        elif node is not mover:
            known[v] = added.put(on_rows(node, known, mover.x.shape[:-1], added))
    return known


def is_by_row(node: Node, inside: Mapping[Value, Node]) -> bool:
    """Whether the node computes row-wise from values `inside`; other operands are equal for all rows."""
    if len(node.outputs) != 1 or not node.inputs:
        return False
    match node.op:
        case Reshape():
            return always_equal(node.x.shape[-1:], node.y.shape[-1:])
        case Normalize():
            return _is_row_norm(node) and not any(v in inside for v in node.inputs[1:])
        case MatMul(trans_a=trans_a):
            w = node.input(1)
            return not trans_a and w not in inside and len(w.shape) == 2 and node.epilogue is None
        case Elementwise(expr=expr):
            if expr.uses_coords or len(node.y.shape) == 0:
                return False
            shape, values = node.y.shape, [v for v in node.inputs if v is not None]
            rows = all(always_equal(v.shape, shape) for v in values if v in inside)
            return rows and all(always_equal(math.prod(v.shape[:-1]), 1) for v in values if v not in inside)
    return False


def _is_row_norm(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Normalize) or op.kind not in TRAILING or node.epilogue is not None:
        return False
    parameters = [v for v in node.inputs[1:] if v is not None]
    return op.axis == len(node.x.shape) - 1 and all(len(v.shape) <= 1 for v in parameters)


def on_rows(node: Node, known: Mapping[Value, Value], lead: Shape, added: Added) -> Node:
    """`node` on other rows: `known` maps its inputs to values whose shapes begin with `lead`."""
    op = node.op
    out = value_like(node.y, (*lead, node.y.shape[-1]))
    inputs = [v if v is None else known.get(v, v) for v in node.inputs]
    if isinstance(op, Normalize):
        op = replace(op, axis=len(lead))
    elif isinstance(op, Elementwise):
        op = replace(op, shape=None)
        inputs = [known[v] if v in known else along_rows(v, node, added) for v in node.inputs if v is not None]
    return node.with_(op=op, inputs=inputs, outputs=[out])


def along_rows(v: Value, node: Node, added: Added) -> Value | None:
    """`v`, equal for every row, without axes before the last; None if it is no operand."""
    if not all(always_equal(n, 1) for n in v.shape[:-1]):
        return None
    return v if len(v.shape) < 2 else added.put(node.make_helper(Reshape(v.shape[-1:]), [v]))
