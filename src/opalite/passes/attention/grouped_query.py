"""Grouped-query attention: keys and values are read in place instead of repeated for each query head."""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal
from ...ops.attention import Attention
from ...ops.data_movement import Reshape
from ...ops.elementwise import Elementwise
from ..rewrite_driver import Sweep


def share_kv_heads(node: Node, sweep: Sweep) -> Patch | str | None:
    """k and v [B,G*n,T,D], expanded from [B,G,1,T,D], become [B,G,T,D], shared by n query heads each."""
    op = node.op
    if not isinstance(op, Attention) or any(view is not None for view in op.views):
        return None
    sources = [_repeated(node.input(i)) for i in (1, 2)]
    k, v = sources
    if k is None or v is None:
        return None if k is v else "only one of keys and values is repeated"
    if not always_equal(k.shape[1], v.shape[1]):
        return "keys and values are repeated differently"
    added = [node.make_helper(Reshape((s.shape[0], s.shape[1], *s.shape[3:])), [s]) for s in (k, v)]
    inputs = [node.input(0), *(a.y for a in added), *node.inputs[3:]]
    return Patch.replacing(node, *added, node.with_(inputs=inputs))


def _repeated(value: Value) -> Value | None:
    """The source [B,G,1,T,D] that is expanded to [B,G,n,T,D] and reshaped to `value`."""
    join = value.producer
    if join is None or not isinstance(join.op, Reshape):
        return None
    expand = join.x.producer
    if expand is None or not isinstance(expand.op, Elementwise) or len(expand.op.expr) or expand.epilogue is not None:
        return None
    x, wide = expand.x, expand.y.shape
    if len(x.shape) != 5 or len(wide) != 5 or not always_equal(x.shape[2], 1):
        return None
    if not always_equal((*x.shape[:2], *x.shape[3:]), (*wide[:2], *wide[3:])):
        return None
    return x if always_equal(value.shape, (wide[0], wide[1] * wide[2], *wide[3:])) else None
