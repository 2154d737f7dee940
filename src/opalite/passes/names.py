"""Fresh value names for nodes that passes add."""

from __future__ import annotations

import itertools

from ..ir.graph import Node, Value
from ..ir.types import TensorType

_counter = itertools.count()


def fresh_value(like: str, type_: TensorType) -> Value:
    """A new value whose name starts with `like` and is unique in the process."""
    return Value(f"{like.split('~')[0]}~{next(_counter)}", type_)


def output_like(node: Node, i: int = 0) -> Value:
    """A new value of the type of output `i` of `node`."""
    out = node.outputs[i]
    return fresh_value(out.name, out.type)
