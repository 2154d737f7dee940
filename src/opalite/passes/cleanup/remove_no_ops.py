"""Remove nodes without effect, and merge adjacent movements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal, is_symbolic
from ...ir.tensor_type import Shape
from ...ops.conv import DepthwiseNhwc
from ...ops.data_movement import Concat, Pad, Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.gather import Gather, clamp_indices
from ...ops.matmul import MatMul
from ...ops.operator import Op
from ..rewrite_driver import Added, Sweep, value_like


def remove_noop(node: Node, sweep: Sweep) -> Patch | str | None:
    """Remove identity expressions, reshapes, transposes, slices and pads, and a Concat of one input."""
    if not node.inputs or node.inputs[0] is None:
        return None
    x = node.inputs[0]
    if not _does_nothing(node, x) or not x.type.fits(node.y.type):
        return None
    return Patch(remove=[node], replace={node.y: x})


def _does_nothing(node: Node, x: Value) -> bool:
    match node.op:
        case Elementwise(expr=expr):
            return len(expr) == 0
        case Reshape():
            return always_equal(x.shape, node.y.shape)
        case Transpose(perm=perm):
            return perm == tuple(range(len(x.shape)))
        case Slice(steps=steps):
            same = always_equal(x.shape, node.y.shape)
            return same and all(s == 1 for s, n in zip(steps, x.shape, strict=True) if n > 1)
        case Pad(pads=pads):
            return all(always_equal(p, 0) for p in pads)
        case Concat():
            return len(node.inputs) == 1
    return False


def drop_empty_inputs(node: Node, sweep: Sweep) -> Patch | str | None:
    """Remove zero-size inputs of a Concat."""
    if not isinstance(node.op, Concat) or len(node.inputs) < 2:
        return None
    kept = [v for v in node.inputs if v is not None and v.type.count]
    if len(kept) == len(node.inputs) or not kept:
        return None
    return _replaced(node, node.op, kept)


def merge_movements(node: Node, sweep: Sweep) -> Patch | str | None:
    """Adjacent transposes, or reshapes, become one; a transpose of size-1 axes only becomes a reshape."""
    op = node.op
    if not isinstance(op, Transpose | Reshape):
        return None
    x, before = node.x, node.x.producer
    if isinstance(op, Transpose):
        moved = [p for p in op.perm if not always_equal(x.shape[p], 1)]
        if moved == sorted(moved):
            return _replaced(node, Reshape(node.y.shape), [x])
        if before is None or not isinstance(before.op, Transpose):
            return None
        inner = before.op.perm
        return _replaced(node, Transpose(tuple(inner[p] for p in op.perm)), [before.x])
    if before is None or not isinstance(before.op, Reshape):
        return None
    return _replaced(node, Reshape(node.y.shape), [before.x])


def pick_by_slice(node: Node, sweep: Sweep) -> Patch | str | None:
    """A Gather of one constant index becomes a Slice, which may be a view of its input's memory.

    So loops that an exporter unrolled read their steps.
    """
    if not isinstance(node.op, Gather) or not node.input(1).is_const or node.input(1).type.count != 1:
        return None
    x, axis = node.x, node.op.axis
    if is_symbolic(x.shape[axis : axis + 1]):
        return "its axis has no fixed size"
    size = x.shape[axis]
    at = int(clamp_indices(node.input(1).array.reshape(-1), size)[0])
    starts = tuple(at if i == axis else 0 for i in range(len(x.shape)))
    sizes = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    added = Added()
    picked = added.put(node.make_helper(Slice(starts, (1,) * len(sizes), sizes), [x]))
    return Patch.replacing(node, *added, node.with_(op=Reshape(node.y.shape), inputs=[picked]))


def sink_reshape(node: Node, sweep: Sweep) -> Patch | str | None:
    """A reshape before an Elementwise moves after it, so that the Elementwise can fuse with its input's producer.

    The other operands are reshaped, which is free, or broadcast equally in both shapes.
    """
    op = node.op
    if not isinstance(op, Elementwise) or op.expr.uses_coords:
        return None
    for i, v in enumerate(node.inputs):
        if v is None or not always_equal(v.shape, node.y.shape) or v.producer is None or sweep.only_use(v) is not node:
            continue
        view = v.producer
        if not isinstance(view.op, Reshape) or view.x.producer is None or not isinstance(view.x.producer.op, _SINKS):
            continue
        if sweep.only_use(view.x) is not view:
            continue
        shape, added = view.x.shape, Added()
        operands = [view.x if k == i else _reshaped(node, other, shape, added) for k, other in enumerate(node.inputs)]
        if any(o is None for o in operands):
            continue
        made = node.with_(op=replace(op, shape=shape), inputs=operands, outputs=[value_like(node.y, shape)])
        return Patch.replacing(node, *added, made, node.make_helper(Reshape(node.y.shape), [made.y]))
    return None


_SINKS = (MatMul, Elementwise, DepthwiseNhwc)  # producers whose layouts any reshape keeps


def _reshaped(node: Node, v: Value | None, after: Shape, added: Added) -> Value | None:
    """Operand `v` of `node`, an expression, reshaped for the output shape `after`; None if it needs a copy."""
    if v is None:
        return None
    before = node.y.shape
    if v.shape == before:
        return added.put(node.make_helper(Reshape(after), [v]))
    alike = not v.shape or (len(v.shape) == 1 and before[-1:] == after[-1:])
    return v if alike and len(v.shape) <= len(after) else None


def _replaced(node: Node, op: Op, inputs: Sequence[Value]) -> Patch:
    return Patch.replacing(node, node.with_(op=op, inputs=inputs))
