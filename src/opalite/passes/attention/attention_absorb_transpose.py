"""Transposes of rows before and after attention become part of attention's views and output axes.

PyTorch's nn.MultiheadAttention puts the sequence before the batch, multiplies by its weights, attends, multiplies again
and puts the batch first again. Row-wise products do not depend on the order of rows, so that attention can absorb the
transposes.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal, is_symbolic
from ...ir.tensor_type import Shape
from ...ops.attention import OPERANDS, Attention, operand_view
from ...ops.data_movement import Reshape, Transpose
from ...ops.strided_view import View
from ..data_movement.rowwise_ops import is_by_row, on_rows, readers_behind, rows_before, rows_from
from ..rewrite_driver import Added, Sweep, value_like


def absorb_input_transpose(node: Node, sweep: Sweep) -> Patch | str | None:
    """A transpose of rows whose row-wise results only attention reads becomes part of attention's views."""
    if not _moves_rows(node):
        return None
    inside = rows_from(node, sweep)
    views: dict[tuple[Node, int], View] = {}
    behind = readers_behind(inside, sweep)
    if behind is None:
        return "the rows are an output of the graph"
    for v, user in behind:
        if not isinstance(user.op, Attention) or v in user.inputs[len(OPERANDS) :]:
            return f"{user.label} reads the rows in their new order"
        for i in range(len(OPERANDS)):
            if user.input(i) is v:
                view = _view_before(operand_view(user.op, v.shape, i), node, v.shape[-1])
                if view is None:
                    return f"{user.label} does not read rows along the axes that are transposed"
                views[user, i] = view
    added = Added()
    known = rows_before(inside, node, added)
    readers = dict.fromkeys(user for user, _ in views)
    replaced: dict[Value, Value] = {}
    for user in readers:
        op = user.as_(Attention)
        of_q, of_k, of_v = (views.get((user, i), op.views[i]) for i in range(len(OPERANDS)))
        inputs = [known.get(v, v) if v is not None else None for v in user.inputs]
        replaced[user.y] = added.put(user.with_(op=replace(op, views=(of_q, of_k, of_v)), inputs=inputs))
    return Patch([*inside.values(), *readers], added, replaced)


def _moves_rows(node: Node) -> bool:
    return isinstance(node.op, Transpose) and len(node.op.perm) > 2 and node.op.perm[-1] == len(node.op.perm) - 1


def _view_before(view: View, turn: Node, row: int) -> View | None:
    """The equivalent of `view` on the input of the Transpose `turn`, for rows of `row` elements.

    None if an axis of the view neither follows one axis of the transpose nor stays within a row.
    """
    if is_symbolic(row) or is_symbolic(view.offset):
        return None
    after, before = (_row_strides(v.shape, row) for v in (turn.y, turn.x))
    left = [k for k, n in enumerate(turn.y.shape[:-1]) if not always_equal(n, 1)]
    farthest = view.offset  # in a row
    strides: list[int] = []
    for size, stride in zip(view.shape, view.strides, strict=True):
        along = next((k for k in left if always_equal(stride, after[k])), None)
        if always_equal(size, 1) or always_equal(stride, 0):
            strides.append(stride)
        elif along is not None and _is_within(size, turn.y.shape[along]):
            left.remove(along)
            strides.append(before[turn.as_(Transpose).perm[along]])
        elif is_symbolic(size) or is_symbolic(stride):
            return None
        else:
            farthest += (size - 1) * stride
            strides.append(stride)
    return View(view.shape, tuple(strides), view.offset) if farthest < row else None


def _row_strides(shape: Shape, row: int) -> list[int]:
    """Strides, in elements, of rows of `row` elements along each axis of `shape` but the last."""
    return [row * math.prod(shape[k + 1 : -1]) for k in range(len(shape) - 1)]


def _is_within(size: int, of: int) -> bool:
    return always_equal(size, of) or (not is_symbolic((size, of)) and size <= of)


def absorb_output_transpose(node: Node, sweep: Sweep) -> Patch | str | None:
    """A transpose of rows computed row-wise from attention's output becomes attention's output order."""
    if not _moves_rows(node):
        return None
    chain: list[Node] = [node]
    while (maker := _made_for(chain[-1], sweep)) is not None and is_by_row(maker, {maker.x: maker}):
        chain.append(maker)
    rows = chain[-1].x
    if maker is not None and isinstance(maker.op, Reshape):
        chain.append(maker)
        maker = _made_for(maker, sweep)
    if maker is None or not isinstance(maker.op, Attention):
        return None
    order = _order_before(maker.y.shape, node, rows.shape[-1])
    if order is None:
        return "the transpose splits attention's rows"
    op = maker.op
    b, h, s, d = (op.out_axes[i] for i in order)
    out = value_like(maker.y, tuple(maker.y.shape[i] for i in order))
    added = Added([maker.with_(op=replace(op, out_axes=(b, h, s, d)), outputs=[out])])
    lead = node.y.shape[:-1]
    v = added.put(node.make_helper(Reshape((*lead, rows.shape[-1])), [out]))
    for made in reversed(chain[1:]):
        if not isinstance(made.op, Reshape):
            v = added.put(on_rows(made, {made.x: v}, lead, added))
    return Patch([maker, *chain], added, {node.y: v})


def _made_for(node: Node, sweep: Sweep) -> Node | None:
    """The node that computes the first input of `node` and has no other reader."""
    return node.x.producer if sweep.only_use(node.x) is node else None


def _order_before(shape: Shape, turn: Node, row: int) -> tuple[int, ...] | None:
    """The permutation of axes of `shape`, attention's output, that has the effect of the Transpose `turn`.

    None if rows of `row` elements are not the last axes of `shape`, or the axes of `turn` are different ones.
    """
    axes = [i for i, n in enumerate(shape) if not always_equal(n, 1)]
    along: dict[int, int] = {}
    for k, n in enumerate(turn.x.shape[:-1]):
        if not always_equal(n, 1):
            if not axes or not always_equal(shape[axes[0]], n):
                return None
            along[k] = axes.pop(0)
    last = len(shape) - 1
    if not always_equal(math.prod(shape[i] for i in axes), row) or last in along.values():
        return None
    named = [along[k] for k in turn.as_(Transpose).perm if k in along]
    ends = [i for i in axes if i != last] + [last]
    return (*(i for i in range(last) if i not in named and i not in ends), *named, *ends)
