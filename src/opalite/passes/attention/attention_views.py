"""Attention reads strided views of its operands' sources and writes in the order of its reader.

Exporters split a fused QKV product into heads by reshapes, transposes, slices and gathers, scale the parts, and merge
the heads of the result. A kernel with strides needs none of these copies.

PyTorch's nn.MultiheadAttention puts the sequence before the batch, multiplies by its weights, attends, multiplies again
and puts the batch first again. Row-wise products do not depend on the order of rows, so that attention can absorb the
transposes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import always_equal, is_symbolic
from ...ir.tensor_type import Shape
from ...ops.attention import OPERANDS, Attention, operand_view
from ...ops.data_movement import Reshape, Slice, Transpose
from ...ops.gather import Gather
from ...ops.strided_view import Movement, View
from ..data_movement.rowwise_ops import is_by_row, on_rows, readers_behind, rows_before, rows_from
from ..rewrite_driver import Added, Sweep, maker_of, value_like
from .recognize_norm_attention import single_call

_LONGEST = 16  # longest chain of movements


def view_attention_inputs(node: Node, sweep: Sweep) -> Patch | str | None:
    """q, k and v are read as views of their sources before reshapes, transposes, slices and scalings."""
    op = node.op
    if not isinstance(op, Attention):
        return None
    views, inputs, scale, changed = list(op.views), list(node.inputs), op.scale, False
    for i in range(len(OPERANDS)):
        v = node.input(i)
        source, view, factor = _trace(v, operand_view(op, v.shape, i), may_scale=i < 2)
        if source is not v:
            inputs[i], views[i], changed = source, view, True
            scale *= factor
    if not changed:
        return None
    of_q, of_k, of_v = views
    made = node.with_(op=replace(op, views=(of_q, of_k, of_v), scale=scale), inputs=inputs)
    return Patch.replacing(node, made)


def _trace(v: Value, view: View, *, may_scale: bool) -> tuple[Value, View, float]:
    """(tensor, view of it, factor): the earliest source of `view` of `v` that keeps rows whole."""
    found = v, view, 1.0
    for source, moved, factor in followed(v, may_scale=may_scale):
        shown = None if moved is None else moved.view
        if shown is None or shown.strides[-1] not in (0, 1) or source.is_const:
            continue
        if view == View.whole(shown.shape):
            found = source, shown, factor
    return found


def followed(
    v: Value, *, may_scale: bool, of: Callable[[Shape], Movement] = Movement.of
) -> Iterator[tuple[Value, Movement | None, float]]:
    """(tensor, Movement from it to `v`, factor) for each source of `v`, nearest first.

    may_scale: whether to continue through products with a number. of: the initial Movement of a source.
    """
    factor = 1.0
    chain: list[Node] = []
    for _ in range(_LONGEST):
        node = v.producer
        if node is None:
            break
        if _is_movement(node):
            chain.append(node)
            v = node.x
        elif may_scale and (scaled := _scaled(v)) is not None:
            v, factor = scaled[0], factor * scaled[1]
        else:
            break
        yield v, _replay(of(v.shape), chain), factor


def _is_movement(node: Node) -> bool:
    match node.op:
        case Reshape() | Transpose():
            return True
        case Slice(steps=steps):
            return all(step > 0 for step in steps)
        case Gather():
            index = node.input(1).data
            return index is not None and index.size == 1 and index.ndim <= 1
    return False


def _scaled(v: Value) -> tuple[Value, float] | None:
    """(x, factor) if `v` is x times a number."""
    match single_call(v):
        case ("mul", [Value() as x, float() as by] | [float() as by, Value() as x], _):
            factor = by
        case ("div", [Value() as x, float() as by], _) if by:
            factor = 1 / by
        case _:
            return None
    return (x, factor) if by and x.shape == v.shape else None


def _replay(moved: Movement | None, chain: list[Node]) -> Movement | None:
    """The Movement after applying `chain`, last node first; None if it has none."""
    for node in reversed(chain):
        if moved is None:
            return None
        match node.op:
            case Reshape():
                moved = moved.reshape(node.y.shape)
            case Transpose(perm=perm):
                moved = moved.transpose(perm)
            case Slice() as cut:
                moved = moved.slice(cut.starts, cut.steps, cut.sizes)
            case _:
                moved = _gather(moved, node)
    return moved


def _gather(moved: Movement, node: Node) -> Movement | None:
    """`moved` at the single index of a Gather; an index of rank 1 leaves an axis of one element."""
    axis, index = node.as_(Gather).axis, node.input(1).data
    assert index is not None
    at, size = int(index.reshape(())), node.x.shape[axis]
    picked = moved.pick(axis, min(max(at + size if at < 0 else at, 0), size - 1))
    return picked if index.ndim == 0 else picked.reshape(node.y.shape)


def order_attention_output(node: Node, sweep: Sweep) -> Patch | str | None:
    """A transpose of the output that keeps rows whole becomes attention's output order."""
    if not isinstance(node.op, Transpose):
        return None
    found = _written_by(node.x, sweep, node)
    if found is None:
        return None
    perm = node.op.perm
    writer, held = found
    if held[perm[-1]][-1:] != (3,):
        return "the transpose takes the rows of attention apart"
    before = writer.as_(Attention)
    named = tuple(axis for p in perm for axis in held[p])
    left = [i for i in range(4) if i not in named]  # axes of one element
    b, h, s, d = (before.out_axes[i] for i in (*left, *named))
    out = value_like(writer.y, tuple(writer.y.shape[i] for i in (*left, *named)))
    attention = writer.with_(op=replace(before, out_axes=(b, h, s, d)), outputs=[out])
    view = node.with_(op=Reshape(node.y.shape), inputs=[out])
    return Patch.replacing(node, attention, view, also=[writer])


def _written_by(v: Value, sweep: Sweep, reader: Node) -> tuple[Node, list[tuple[int, ...]]] | None:
    """(the Attention that computes `v`, perhaps through a reshape; for each axis of `v` the output axes in it)."""
    writer, _ = maker_of(v, reader, sweep)
    if writer is None or not isinstance(writer.op, Attention):
        return None
    if writer.y is v:
        return writer, [(i,) for i in range(4)]
    # A reshape may add or drop axes of one element, or merge axes.
    held: list[tuple[int, ...]] = []
    own = [i for i in range(4) if not always_equal(writer.y.shape[i], 1)]
    for size in v.shape:
        joined: list[int] = []
        while own and not always_equal(math.prod(writer.y.shape[i] for i in joined), size):
            joined.append(own.pop(0))
        if not always_equal(math.prod(writer.y.shape[i] for i in joined), size):
            return None
        held.append(tuple(joined))
    return (writer, held) if not own else None


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
