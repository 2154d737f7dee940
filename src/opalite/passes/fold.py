"""Fold: compute ahead of time what depends on constants only."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Node, Value
from ..ir.patch import Patch
from .names import fresh_value
from .rewrite import Sweep

_LIMIT_BYTES = 64 << 20  # a folded value larger than this and than its inputs stays symbolic


def fold_constants(node: Node, sweep: Sweep) -> Patch | str | None:
    """Replace a node whose inputs are all constants by its reference result."""
    if node.op.random or node.op.name in ("HostOp", "PlaceCast"):
        return None
    if not all(v is None or v.is_const for v in node.inputs):
        return None
    grown = sum(o.type.count * o.dtype.size for o in node.outputs)
    if grown > max(_LIMIT_BYTES, sum(v.type.count * v.dtype.size for v in node.inputs if v is not None)):
        return "the folded result would be too large to keep"
    arrays = node.op.reference(node.attrs, [None if v is None else v.data for v in node.inputs])
    replace: dict[Value, Value] = {}
    for out, array in zip(node.outputs, arrays, strict=False):
        folded = fresh_value(out.name, out.type)
        folded.data = np.ascontiguousarray(array, out.dtype.np).reshape(out.shape)
        replace[out] = folded
    return Patch(remove=[node], replace=replace)
