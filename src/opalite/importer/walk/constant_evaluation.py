"""Evaluation of parts of a Graph by the operators' NumPy references."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from ...errors import OpaliteError
from ...ir import Array, Graph, Node, Value
from ...ir.symbols import fixed, holds_symbols
from ...ops.host import HostOp
from .shape_propagation import to_array

CHEAP_COST = 1e5
"""Cost limit (floating-point operations plus bytes) for computing a value on the host to save a segment."""

RANDOM_OPS = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout")
)
"""ONNX operators with random results, which are never run at import."""


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Compute the outputs of `graph` for `inputs`, in order."""
    return evaluate_nodes(graph.nodes, dict(zip(graph.inputs, inputs, strict=True)), graph.outputs)


def evaluate_nodes(nodes: Sequence[Node], known: Mapping[Value, Array], wanted: Sequence[Value]) -> list[Array]:
    """Run `nodes` in order and return the arrays of `wanted`; `known` holds the initial values, constants aside."""
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
    """Return every node that `values` depend on, in execution order."""
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
    """Whether `nodes` may run on the host during an import: deterministic, at little cost."""
    total = 0.0
    for node in nodes:
        if node.op.random or (isinstance(node.op, HostOp) and node.op.op_type in RANDOM_OPS):
            return False
        cost = node.cost()
        total += cost.flops + cost.bytes
    return total <= CHEAP_COST


def contents_from_sizes(value: Value, sized: Mapping[Value, Array | None]) -> Array | None:
    """Return the contents of a value that depends on constants and sizes only, if they are cheap; else None.

    sized: tensors whose elements are expressions. Sizes that determine the contents become static.
    """
    if value.data is not None:
        return value.data
    if (own := sized.get(value)) is not None:
        return to_array(own, value.dtype)
    nodes = ancestors([value])
    roots = [v for node in nodes for v in node.inputs if v is not None and not v.is_const and v.producer is None]
    if not nodes or any(sized.get(v) is None for v in roots) or not is_cheap(nodes):
        return None
    known = {v: to_array(a, v.dtype) for v in roots if (a := sized.get(v)) is not None}
    return evaluate_nodes([_with_fixed_sizes(n) for n in nodes], known, [value])[0]


def _with_fixed_sizes(node: Node) -> Node:
    if not holds_symbols(node.op):
        return node
    made = copy.copy(node)
    made.op = replace(
        cast(Any, node.op), **{f.name: fixed(getattr(node.op, f.name)) for f in fields(cast(Any, node.op))}
    )
    return made
