"""Nodes that kernels answer alike: layers of a model repeat, and are asked about once."""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.graph import Node, Value
from ..ops.host import HostOp
from ..ops.tree_ensemble import TreeEnsemble

_READ = 64  # elements of integers up to which kernels look at them, as at zero points; of floats they look at scalars


def node_key(node: Node) -> Hashable | None:
    """Equal for nodes, at plain sizes, of which every kernel says the same: whether it computes them, in which layouts,
    how fast and with which parameters. None for a node that is like no other.

    Of tensors of floats kernels know the type; large ones of integers are like no other.
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
    if v.type.count > (1 if v.dtype.is_float else _READ):
        return v.dtype.is_float or v
    data = v.data
    assert data is not None
    return data.tobytes()
