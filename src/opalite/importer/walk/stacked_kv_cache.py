"""Stacked KV caches: keys and values of a layer in one tensor, as in old GPT-2 exports and onnxruntime's Attention.

Such a model splits the past into parts, concatenates new rows to each, and stacks the parts again. Stacking the new
rows first gives one Concat with the past, which an in-place append can replace.
"""

from __future__ import annotations

from ...ir.graph import Graph, Node, Value, new_value
from ...ir.symbols import always_equal
from ...ir.tensor_type import TensorType
from ...ops.data_movement import Concat, Reshape, Slice
from ...ops.gather import Gather


def unstack(graph: Graph, past: Value, present: Value, axis: int) -> bool:
    """Rewrite `present` as one Concat of `past` and the stacked new rows along `axis`; False if it is not a stack.

    The parts become slices of `present`.
    """
    stack = present.producer
    if stack is None or not isinstance(stack.op, Concat) or stack.op.axis == axis:
        return False
    across = stack.op.axis
    parts = [_part(past, v, i, across, axis) for i, v in enumerate(stack.inputs)]
    if len(parts) != past.shape[across] or not all(parts):
        return False
    found = [p for p in parts if p is not None]
    nodes, fresh = list[Node](), list[Value]()
    for concat, new in found:
        nodes.append(concat.make_helper(Reshape(_with_axis(new, across)), [new]))
        fresh.append(nodes[-1].y)
    nodes.append(stack.make_helper(Concat(across), fresh))
    whole = Node(Concat(axis), [past, nodes[-1].y], [present], name=stack.name, origin=stack.origin)
    present.producer = whole
    nodes.append(whole)
    for i, (concat, _) in enumerate(found):
        starts = tuple(i if k == across else 0 for k in range(len(present.shape)))
        sizes = tuple(1 if k == across else d for k, d in enumerate(present.shape))
        part = new_value(concat.y.name, TensorType(present.dtype, sizes))
        cut = Node(Slice(starts, (1,) * len(sizes), sizes), [present], [part], name=concat.name, origin=concat.origin)
        shown = Node(Reshape(concat.y.shape), [part], [concat.y], name=concat.name, origin=concat.origin)
        part.producer, concat.y.producer = cut, shown
        nodes += cut, shown
    gone = {stack, *(concat for concat, _ in found)}
    graph.nodes[:] = [n for n in graph.nodes if n not in gone] + nodes
    graph.sort()
    return True


def _part(past: Value, piece: Value | None, i: int, across: int, axis: int) -> tuple[Node, Value] | None:
    """Return (Concat, new rows) if `piece` is part `i` of `past` followed by new rows, with one more axis."""
    lift = None if piece is None else piece.producer
    if lift is None or not isinstance(lift.op, Reshape) or piece is None:
        return None
    joined = lift.x
    concat = joined.producer
    if concat is None or not isinstance(concat.op, Concat) or len(concat.inputs) != 2:
        return None
    if concat.op.axis != axis - (axis > across) or not always_equal(piece.shape, _with_axis(joined, across)):
        return None
    old = concat.x
    is_part = always_equal(_with_axis(old, across), _slice_shape(past, across)) and _selects(past, old, i, across)
    return (concat, concat.input(1)) if is_part else None


def _with_axis(v: Value, across: int) -> tuple[int, ...]:
    return (*v.shape[:across], 1, *v.shape[across:])


def _slice_shape(past: Value, across: int) -> tuple[int, ...]:
    return (*past.shape[:across], 1, *past.shape[across + 1 :])


def _selects(past: Value, old: Value, i: int, across: int) -> bool:
    """Whether `old` is entry `i` of `past` along `across`."""
    node = old.producer
    if node is not None and isinstance(node.op, Reshape):
        node = node.x.producer
    if node is None or not node.inputs or node.x is not past:
        return False
    match node.op:
        case Gather(axis=axis):
            index = node.input(1).data
            at = None if index is None or index.size != 1 else int(index.reshape(()))
            return axis == across and at in (i, i - past.shape[across])
        case Slice(starts=starts, sizes=sizes):
            begins = tuple(i if k == across else 0 for k in range(len(past.shape)))
            return starts == begins and always_equal(sizes, _slice_shape(past, across))
    return False
