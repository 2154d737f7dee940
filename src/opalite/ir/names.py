"""Names of values that passes add: the graph that takes one gives it its number (Graph.adopt)."""

from __future__ import annotations

from .graph import Node, Value
from .types import TensorType


def fresh_value(like: str, type_: TensorType) -> Value:
    """A new value whose name starts with `like` and awaits a number."""
    return Value(like.split("~")[0], type_, unnumbered=True)


def output_like(node: Node, i: int = 0) -> Value:
    """A new value of the type of output `i` of `node`."""
    out = node.outputs[i]
    return fresh_value(out.name, out.type)
