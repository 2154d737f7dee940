"""Nodes that kernels answer alike: layers of a model repeat, and are asked about once."""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.graph import Node, Value
from ..ops.host import HostOp
from ..ops.tree_ensemble import TreeEnsemble

_READ = 64  # elements of a constant up to which kernels look at it: scalars, and zero points of channels


def node_key(node: Node) -> Hashable | None:
    """Equal for nodes, at plain sizes, of which every kernel says the same: whether it computes them, in which layouts,
    how fast and with which parameters. None for a node that is like no other.

    Of large constants kernels know the type; those of integers count as what they are.
    """
    if isinstance(node.op, HostOp | TreeEnsemble):
        return None
    first: dict[Value, int] = {}
    inputs = tuple(
        None if v is None else (first.setdefault(v, i), v.type, _contents(v)) for i, v in enumerate(node.inputs)
    )
    key = (type(node.op), node.op, node.epilogue, node.precision, inputs, tuple(v.type for v in node.outputs))
    try:
        hash(key)
    except TypeError:  # attributes that are arrays
        return None
    return key


def _contents(v: Value) -> Hashable:
    if not v.is_const:
        return None
    if v.type.count > _READ:
        return v.dtype.is_float or v
    data = v.data
    assert data is not None
    return data.tobytes()
