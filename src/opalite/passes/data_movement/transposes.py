"""Fuse transposes with reshapes between them, and sink transposes below readers that shrink them."""

from __future__ import annotations

import math
from dataclasses import replace

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import hint_of, is_symbolic
from ...ops.data_movement import Reshape, Slice, Transpose
from ...ops.gather import Gather
from ...ops.operator import Op
from ...ops.reduce import Reduce
from ...ops.strided_view import Movement, Run, merged_runs
from ..rewrite_driver import Added, Sweep, joined_origin, value_like

_SHRINKS = 4  # least factor by which the result of a reader is smaller
_LONGEST = 16  # longest chain of movements


def fuse_transposes(node: Node, sweep: Sweep) -> Patch | str | None:
    """Two or more Transposes of one source become one Transpose of split axes."""
    if not isinstance(node.op, Transpose):
        return None
    chain = [node]
    found: tuple[list[Node], list[Run]] | None = None
    while len(chain) < _LONGEST:
        v = chain[-1].x
        before = v.producer
        if before is None or not isinstance(before.op, Transpose | Reshape) or sweep.only_use(v) is not chain[-1]:
            break
        chain.append(before)
        if isinstance(before.op, Transpose):
            if is_symbolic([n.x.shape for n in chain]):
                return "its sizes are open"
            runs = _runs(before.x, chain)
            if runs is not None:
                found = list(chain), runs
    if found is None:
        return None
    chain, runs = found
    order = sorted(range(len(runs)), key=lambda i: -runs[i][1])  # of x's axes
    shape = tuple(runs[i][0] for i in order)
    perm = tuple(sorted(range(len(order)), key=order.__getitem__))
    apart = node.make_helper(Reshape(shape), [chain[-1].x])
    turned = node.with_(op=Transpose(perm), inputs=[apart.y], outputs=[], origin=joined_origin(*reversed(chain)))
    turned.outputs = [node.make_helper(Transpose(perm), [apart.y], like=node.y.name).y]
    turned.y.producer = turned
    whole = node.make_helper(Reshape(node.y.shape), [turned.y])
    return Patch.replacing(node, apart, turned, whole, also=chain[1:])


def _runs(x: Value, chain: list[Node]) -> list[Run] | None:
    """Lengths and strides in `x` of the split axes after `chain`; None if axes cannot be split."""
    if 0 in x.shape:
        return None
    moved: Movement | None = Movement.of(x.shape)
    for node in reversed(chain):
        if moved is None:
            return None
        moved = moved.transpose(node.op.perm) if isinstance(node.op, Transpose) else moved.reshape(node.y.shape)
    if moved is None:
        return None
    runs = list(merged_runs([run for axis in moved.axes for run in axis]))
    return runs if math.prod(n for n, _ in runs) == x.type.count else None


def sink_transpose(node: Node, sweep: Sweep) -> Patch | str | None:
    """Reduce, Slice or Gather of a transpose becomes a transpose of its result; slices before a Reduce move too."""
    op = node.op
    if not isinstance(op, Reduce | Slice | Gather):
        return None
    if _SHRINKS * hint_of(node.y.type.count) > hint_of(node.x.type.count):
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
    added, value = Added(), turn.x

    def put(like: Node, inputs: list[Value | None], op: Op) -> Value:
        (found,) = op.infer_shape([None if v is None else v.type for v in inputs])
        return added.put(like.with_(op=op, inputs=inputs, outputs=[value_like(like.y, found.shape)]))

    for cut in reversed(slices):
        value = put(cut, [value], _sliced_before(cut.as_(Slice), perm))
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
    value = put(node, [value, *node.inputs[1:]], sunk)
    turned = node.make_helper(Transpose(tuple(order)), [value], like=node.y.name)
    return Patch.replacing(node, *added, turned, also=slices)


def _sliced_before(op: Slice, perm: tuple[int, ...]) -> Slice:
    """The Slice on the transpose's input that is equivalent to `op` on its output."""
    order = sorted(range(len(perm)), key=perm.__getitem__)
    starts, steps, sizes = (tuple(of[k] for k in order) for of in (op.starts, op.steps, op.sizes))
    return Slice(starts, steps, sizes)
