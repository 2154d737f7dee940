"""Sink transposes below shrinking readers: Reduce, Slice or Gather of a transpose becomes a smaller transpose."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.symbols import hint_of
from ...ir.tensor_type import TensorType
from ...ops.data_movement import Slice, Transpose
from ...ops.gather import Gather
from ...ops.operator import Op
from ...ops.reduce import Reduce
from ..rewrite_driver import Sweep

_SHRINKS = 4  # least factor by which the result is smaller


def sink_transpose(node: Node, sweep: Sweep) -> Patch | str | None:
    """Reduce, Slice or Gather of a transpose becomes a transpose of its result; slices before a Reduce move too."""
    op = node.op
    if not isinstance(op, Reduce | Slice | Gather) or _SHRINKS * hint_of(node.y.type.count) > hint_of(
        node.x.type.count
    ):
        return None
    slices: list[Node] = []
    x: Value = node.x
    while isinstance(op, Reduce) and x.producer is not None and isinstance(x.producer.op, Slice):
        if sweep.only_use(x) is not (slices[-1] if slices else node):
            break
        slices.append(x.producer)
        x = x.producer.x
    turn = x.producer
    if turn is None or not isinstance(turn.op, Transpose):
        return None
    perm = turn.op.perm
    added: list[Node] = []
    value = turn.x
    for cut in reversed(slices):
        value = _append(added, cut, [value], _sliced_before(cut.as_(Slice), perm))
    sunk: Op
    if isinstance(op, Reduce):
        axes = tuple(sorted(perm[a] for a in op.axes))
        left = [k for k in range(len(perm)) if op.keepdims or k not in axes]
        sunk, order = replace(op, axes=axes), [left.index(k) for k in perm if k in left]
    elif isinstance(op, Slice):
        sunk, order = _sliced_before(op, perm), list(perm)
    else:
        rank = len(node.input(1).shape)
        taken = perm[op.axis]  # replaced by the axes of the indices
        sunk = replace(op, axis=taken)
        order = [k + rank - 1 if k > taken else k for k in perm]
        order[op.axis : op.axis + 1] = range(taken, taken + rank)
    value = _append(added, node, [value, *node.inputs[1:]], sunk)
    turned = node.make_helper(Transpose(tuple(order)), [value], like=node.y.name)
    return Patch.replacing(node, *added, turned, also=slices)


def _sliced_before(op: Slice, perm: tuple[int, ...]) -> Slice:
    """The Slice on the transpose's input that is equivalent to `op` on its output."""
    order = sorted(range(len(perm)), key=perm.__getitem__)
    starts, steps, sizes = (tuple(of[k] for k in order) for of in (op.starts, op.steps, op.sizes))
    return Slice(starts, steps, sizes)


def _append(added: list[Node], like: Node, inputs: list[Value | None], op: Op) -> Value:
    """The output of a new helper node of `like` that computes `op`."""
    (found,) = op.infer_shape([None if v is None else v.type for v in inputs])
    out = new_value(like.y.name, TensorType(like.y.dtype, found.shape))
    added.append(like.with_(op=op, inputs=inputs, outputs=[out]))
    return out
