"""Constant folding, and folding of tensors without elements."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.symbols import holds_symbols, is_symbolic
from ...ops.elementwise import PlaceCast
from ...ops.host import HostOp
from ..rewrite_driver import Sweep

_LIMIT_BYTES = 64 << 20  # larger results are folded only if smaller than their inputs


def fold_constants(node: Node, sweep: Sweep) -> Patch | str | None:
    """Replace a node whose inputs are all constants by its reference result."""
    if node.op.random or isinstance(node.op, HostOp | PlaceCast):
        return None
    if not all(v is None or v.is_const for v in node.inputs):
        return None
    if holds_symbols(node.op) or any(is_symbolic(o.shape) for o in node.outputs):
        return None  # the result depends on open sizes
    grown = sum(o.type.count * o.dtype.size for o in node.outputs)
    if grown > max(_LIMIT_BYTES, sum(v.type.count * v.dtype.size for v in node.inputs if v is not None)):
        return "the folded result would be too large to keep"
    arrays = node.op.reference([None if v is None else v.data for v in node.inputs])
    replace: dict[Value, Value] = {}
    for out, array in zip(node.outputs, arrays, strict=False):
        folded = new_value(out.name, out.type)
        folded.data = np.ascontiguousarray(array, out.dtype.np).reshape(out.shape)
        replace[out] = folded
    return Patch(remove=[node], replace=replace)


def fold_empty(node: Node, sweep: Sweep) -> Patch | str | None:
    """Replace tensors without elements by constants.

    Later passes and kernels then never see empty nodes, and results of empty inputs alone, such as sums, can be folded.
    """
    empty = {v for v in (*node.inputs, *node.outputs) if v is not None and not v.is_const and not v.type.count}
    replace: dict[Value, Value] = {}
    for v in empty:
        if v in sweep.uses or v in sweep.exposed:
            replace[v] = new_value(v.name, v.type)
            replace[v].data = np.zeros(v.shape, v.dtype.np)
    return Patch(replace=replace) if replace else None
