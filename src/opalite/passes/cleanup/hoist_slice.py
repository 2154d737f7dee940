"""Hoist slices: a node of which only a slice is read computes that slice alone.

A classifier reads the first row of a transformer's last block (Dosovitskiy et al., ViT, 2021). Text generation reads
the logits of the last position. Products, norms and expressions before them, back to the queries of the last attention,
need no other rows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.graph import Node, Value, new_value
from ...ir.patch import Patch
from ...ir.symbols import always_equal, hint_of
from ...ir.tensor_type import Shape, TensorType
from ...ops.attention import Attention
from ...ops.data_movement import Concat, Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.gather import Gather
from ...ops.integer_conv_matmul import IntegerMatMul
from ...ops.matmul import MatMul, MatrixProduct
from ...ops.normalize import TRAILING, Normalize
from ...ops.operator import Op
from ...ops.quantized_matmul import QuantizedMatMul
from ...ops.reduce import Reduce
from ...ops.softmax import Softmax
from ..rewrite_driver import Added, Sweep, value_like

_SHRINKS = 2  # least factor by which the slice is smaller
_WORK = (MatMul, QuantizedMatMul, IntegerMatMul, Attention, Normalize, Softmax)
"""Operators worth extra slices of operands."""

_FARTHEST = 64  # most nodes searched upward for such an operator

Axes = Sequence[int | None]
"""The sliced axis of each input; None for an input that is read whole."""


@dataclass(frozen=True)
class _Cut:
    """`size` positions along `axis`, `step` apart, from `start` on."""

    axis: int
    start: int
    step: int
    size: int

    def is_(self, other: _Cut | None) -> bool:
        """Whether `other` is the same slice for all open sizes."""
        if other is None or self.axis != other.axis:
            return False
        pairs = ((self.start, other.start), (self.step, other.step), (self.size, other.size))
        return all(always_equal(a, b) for a, b in pairs)

    def shape(self, of: Shape) -> Shape:
        """The shape after slicing `of`."""
        return (*of[: self.axis], self.size, *of[self.axis + 1 :])

    def op(self, of: Shape) -> Slice:
        """The Slice on a tensor of shape `of`."""
        rest = len(of) - self.axis - 1
        starts = (*(0,) * self.axis, self.start, *(0,) * rest)
        return Slice(starts, (*(1,) * self.axis, self.step, *(1,) * rest), self.shape(of))


def hoist_slice(node: Node, sweep: Sweep) -> Patch | str | None:
    """A slice of a position-wise node's output becomes a slice of its inputs, if that saves work."""
    cut = _cut_of(node)
    if cut is None or _SHRINKS * hint_of(cut.size) > hint_of(node.x.shape[cut.axis]):
        return None
    x, maker = node.x, node.x.producer
    if maker is None or x in sweep.exposed:
        return None
    readers = sweep.uses[x]
    if readers[0] is not node:
        return None  # the first slice handles all of them
    if any(other is not node and not cut.is_(_cut_of(other)) for other in readers):
        return "other parts are read too"
    axes = _axes(maker, cut)
    if axes is None:
        return f"{maker.label} needs more than a slice of its inputs"
    if not _spares_work(x, cut, sweep):
        return "too little work would be saved"
    added = Added()

    def part_of(v: Value | None, axis: int | None) -> Value | None:
        if v is None or axis is None:
            return v
        own = replace(cut, axis=axis)
        return added.put(node.with_(op=own.op(v.shape), inputs=[v], outputs=[value_like(v, own.shape(v.shape))]))

    inputs = list(map(part_of, maker.inputs, axes))
    out = new_value(node.y.name, TensorType(x.dtype, cut.shape(x.shape)))
    added.append(maker.with_(op=_smaller(maker.op, cut), inputs=inputs, outputs=[out]))
    replaced: dict[Value, Value] = {}
    for reader in readers:
        if isinstance(reader.op, Slice):
            replaced[reader.y] = out
        else:
            replaced[reader.y] = added.put(reader.with_(op=Reshape(reader.y.shape), inputs=[out]))
    return Patch([maker, *readers], added, replaced)


def _cut_of(node: Node) -> _Cut | None:
    """The slice of a single axis that a node takes: a Slice, or a Gather at one constant index."""
    match node.op:
        case Slice(starts=starts, steps=steps, sizes=sizes):
            cut = [i for i, (a, b) in enumerate(zip(sizes, node.x.shape, strict=True)) if not always_equal(a, b)]
            if len(cut) != 1 or any(s != 1 for i, s in enumerate(steps) if i != cut[0]):
                return None
            return _Cut(cut[0], starts[cut[0]], steps[cut[0]], sizes[cut[0]])
        case Gather(axis=axis):
            data = node.input(1).data
            if data is None or data.size != 1:
                return None
            index, size = int(data.item()), node.x.shape[axis]
            return _Cut(axis, index + size if index < 0 else index, 1, 1) if -size <= index < size else None
    return None


def _axes(node: Node, cut: _Cut) -> Axes | None:
    """The axis of each input to slice for `cut` of the output; None if the node needs all of its inputs."""
    if len(node.outputs) != 1 or node.epilogue is not None:
        return None
    axis, y, op, whole = cut.axis, node.y.shape, node.op, [None] * (len(node.inputs) - 1)
    match op:
        case Elementwise():
            return None if op.expr.uses_coords else _broadcast(node.inputs, axis - len(y), y[axis])
        case MatMul() | QuantizedMatMul() | IntegerMatMul():
            return _of_product(node, op, axis)
        case Normalize(kind=kind):
            return [axis, *whole] if kind in TRAILING and axis < op.axis else None
        case Softmax():
            return [axis] if axis != op.axis else None
        case Attention():
            return _of_attention(node, op, cut)
        case Transpose(perm=perm):
            return [perm[axis]]
        case Slice(steps=steps):
            return [axis] if steps[axis] == 1 and always_equal(y[axis], node.x.shape[axis]) else None
        case Concat(axis=joined):
            return [axis] * len(node.inputs) if axis != joined else None
        case Reduce(axes=reduced, keepdims=keepdims):
            left = [i for i in range(len(node.x.shape)) if keepdims or i not in reduced]
            return [left[axis], *whole] if left[axis] not in reduced else None
        case Reshape():
            before = math.prod(y[:axis])
            for i, size in enumerate(node.x.shape):
                if always_equal(size, y[axis]) and always_equal(math.prod(node.x.shape[:i]), before):
                    return [i]
    return None


def _broadcast(values: Sequence[Value | None], back: int, size: int) -> Axes | None:
    """Axes of operands that NumPy broadcasts to `size` along axis `back`, counted from the end (-1 is the last)."""
    found: list[int | None] = []
    for v in values:
        at = -1 if v is None else back + len(v.shape)
        if v is None or at < 0 or always_equal(v.shape[at], 1):
            found.append(None)
        elif always_equal(v.shape[at], size):
            found.append(at)
        else:
            return None  # depends on open sizes
    return found


def _of_product(node: Node, op: MatrixProduct, axis: int) -> Axes | None:
    """Sliced axes of a product: rows of a, or matrices of a batch."""
    rank = len(node.y.shape)
    if axis == rank - 1:
        return None
    if axis == rank - 2:
        return [len(node.x.shape) - (1 if op.trans_a else 2), *[None] * (len(node.inputs) - 1)]
    stacks = _broadcast(node.inputs[:2], axis - rank, node.y.shape[axis])
    return None if stacks is None else [*stacks, *[None] * (len(node.inputs) - 2)]


def _of_attention(node: Node, op: Attention, cut: _Cut) -> Axes | None:
    """Sliced axes of attention: queries, which are independent; with causal masks only the last one."""
    q, k = node.x.shape, node.input(1).shape
    is_plain = not any(op.views) and op.out_axes == (0, 1, 2, 3)
    sees_all = not op.causal or (always_equal(cut.start, q[2] - 1) and always_equal(k[2], q[2]))
    if not is_plain or cut.axis != 2 or not sees_all:
        return None
    masks = _broadcast(node.inputs[3:], -2, q[2])
    return None if masks is None else [2, None, None, *masks]


def _smaller(op: Op, cut: _Cut) -> Op:
    """The operator for the slice of its output."""
    if isinstance(op, Reshape) or (isinstance(op, Elementwise) and op.shape is not None):
        return replace(op, shape=cut.shape(op.shape or ()))
    if isinstance(op, Slice):
        return replace(op, sizes=cut.shape(op.sizes))
    return replace(op, causal=False) if isinstance(op, Attention) else op


def _spares_work(x: Value, cut: _Cut, sweep: Sweep) -> bool:
    """Whether slicing `x` lets some expensive node compute less.

    Values are visited last first, when the needs of all their readers are known.
    """
    needs: dict[Value, list[tuple[Node, _Cut]]] = {x: []}
    waiting = [(0, 0, x, cut)]
    for _ in range(_FARTHEST):
        if not waiting:
            break
        *_, v, part = heapq.heappop(waiting)
        maker = v.producer
        assert maker is not None
        known = [*needs[v], *((r, own) for r in sweep.uses[v] if (own := _cut_of(r)) is not None)]
        is_part = v not in sweep.exposed and all(part.is_(own) for _, own in known)
        axes = _axes(maker, part) if is_part and {r for r, _ in known} == set(sweep.uses[v]) else None
        if axes is None:
            continue
        if isinstance(maker.op, _WORK):
            return True
        for u, axis in zip(maker.inputs, axes, strict=True):
            if u is None or axis is None or u.producer is None:
                continue
            own = replace(part, axis=axis)
            if u not in needs:
                needs[u] = []
                heapq.heappush(waiting, (-sweep.position[u.producer], len(needs), u, own))
            needs[u].append((maker, own))
    return False
