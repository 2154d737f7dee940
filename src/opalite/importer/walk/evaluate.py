"""Evaluating parts of a Graph by the operators' NumPy references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import OpaliteError
from ...ir.graph import Graph, Node, Value
from ...ops.host import HostOp

Array = np.ndarray[Any, Any]

CHEAP_COST = 1e5
"""Floating-point operations plus bytes up to which a value is computed on the host to save a cut."""

RANDOM_OPS = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout")
)
"""ONNX operators that give another result each time, and so are never run ahead of time."""


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of `graph` for `inputs`, in order."""
    return evaluate_nodes(graph.nodes, dict(zip(graph.inputs, inputs, strict=True)), graph.outputs)


def evaluate_nodes(nodes: Sequence[Node], known: Mapping[Value, Array], wanted: Sequence[Value]) -> list[Array]:
    """`wanted` after running `nodes` in order; `known` holds the values they start from, constants aside."""
    arrays: dict[Value, Array] = dict(known)

    def array(v: Value) -> Array:
        return arrays[v] if v in arrays or v.data is None else v.data

    for node in nodes:
        try:
            with np.errstate(all="ignore"):
                outs = node.op.reference([None if v is None else array(v) for v in node.inputs])
        except OpaliteError as e:
            e.add_context(f"while running {node.label}")
            raise
        for v, a in zip(node.outputs, outs, strict=False):
            arrays[v] = np.asarray(a).astype(v.dtype.np, copy=False).reshape(v.shape)
    return [array(v) for v in wanted]


def ancestors(values: Sequence[Value]) -> list[Node]:
    """Every node that `values` depend on, in execution order."""
    done: set[Node] = set()
    order: list[Node] = []
    stack: list[tuple[Node, bool]] = [(v.producer, False) for v in values if v.producer is not None]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend(
                (v.producer, False)
                for v in node.inputs
                if v is not None and v.producer is not None and v.producer not in done
            )
    return order


def is_cheap(nodes: Sequence[Node]) -> bool:
    """Whether `nodes` may run on the host beside an import: deterministic and of little cost."""
    total = 0.0
    for node in nodes:
        if node.op.random or (isinstance(node.op, HostOp) and node.op.op_type in RANDOM_OPS):
            return False
        cost = node.cost()
        total += cost.flops + cost.bytes
    return total <= CHEAP_COST


def closed_value(value: Value) -> Array | None:
    """The contents of a value that depends on constants alone, if they are cheap to find; else None."""
    if value.data is not None:
        return value.data
    nodes = ancestors([value])
    open_inputs = any(v is not None and v.data is None and v.producer is None for node in nodes for v in node.inputs)
    if not nodes or open_inputs or not is_cheap(nodes):
        return None
    return evaluate_nodes(nodes, {}, [value])[0]
