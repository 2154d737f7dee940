"""Keys that are equal for nodes on which every kernel behaves alike, so that repeated layers are queried once."""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.graph import Node, Value
from ..ops.host import HostOp
from ..ops.tree_ensemble import TreeEnsemble

_READ = 64  # kernels read values of integer constants (zero points) up to this size, of float constants only scalars


def node_key(node: Node) -> Hashable | None:
    """A key equal for nodes that every kernel treats alike: support, layouts, cost and parameters; None if unique.

    Shapes must be concrete. Float tensors count by type alone. An integer constant of more than 64 elements makes the
    node unique.
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
