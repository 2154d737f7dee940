"""Nodes with symbolic sizes replaced by their hints, for choices by cost that record no guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from .graph import Node, Value
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
        hinted_record(node.op),
        [None if v is None else made[v] for v in node.inputs],
        [made[v] for v in node.outputs],
        hinted_record(node.epilogue),
        node.name,
        node.origin,
        node.choice,
        node.precision,
        node.precision_reason,
    )


def _hinted_value(v: Value) -> Value:
    type_ = TensorType(v.type.dtype, hint_of(v.shape), v.type.place)
    return Value(v.name, type_, v.lazy_data, v.producer, v.quantized)


def hinted_record(x: Any, number: Callable[[Any], Any] = hint_of) -> Any:
    """`x`, a number, dataclass or container, with plain numbers for symbols; `x` itself if it has none.

    number: converts one symbolic number to a plain one.
    """
    if type(x) in (tuple, list):
        made = [hinted_record(i, number) for i in x]
        return x if all(a is b for a, b in zip(x, made, strict=True)) else type(x)(made)
    if is_dataclass(x) and not isinstance(x, type) and not isinstance(x, Value | Node):
        old = {f.name: getattr(x, f.name) for f in fields(x) if f.init}
        found = {name: (value, hinted_record(value, number)) for name, value in old.items()}
        changed = {name: new for name, (value, new) in found.items() if new is not value}
        return replace(x, **changed) if changed else x
    return number(x)
