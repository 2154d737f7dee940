"""Nodes with symbolic sizes replaced by their hints, for choices by cost that record no guard."""

from __future__ import annotations

from .graph import Node, Value
from .map_record import map_record
from .symbols import hint_of, is_symbolic
from .tensor_type import TensorType


def hinted(node: Node) -> Node:
    """A copy of `node` with plain integers for symbols in its operator and shapes; `node` itself if it has none.

    The copy is detached from the graph: its outputs have no readers.
    """
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    if not any(is_symbolic(v.type.shape) for v in values):
        return node
    made = {v: _hinted_value(v) for v in values}
    return Node(
        map_record(node.op, hint_of),
        [None if v is None else made[v] for v in node.inputs],
        [made[v] for v in node.outputs],
        map_record(node.epilogue, hint_of),
        node.name,
        node.origin,
        node.choice,
        node.precision,
        node.precision_reason,
    )


def _hinted_value(v: Value) -> Value:
    type_ = TensorType(v.type.dtype, hint_of(v.shape), v.type.place)
    return Value(v.name, type_, v.lazy_data, v.producer, v.quantized)
