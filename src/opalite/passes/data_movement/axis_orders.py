"""Orders of axes: the form of each operator on tensors whose axes are stored in another order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...expr.expression import Expr, Instr, Lit
from ...ir.graph import Node
from ...ir.symbols import always_equal, hint_of
from ...ir.tensor_type import Shape
from ...ops.cumulative import Cumulative
from ...ops.data_movement import Concat, Pad, Reshape, Slice
from ...ops.elementwise import Elementwise
from ...ops.gather import Gather
from ...ops.operator import Op
from ...ops.reduce import ArgReduce, Reduce
from ...ops.resize import Resize
from ...ops.softmax import Softmax

Order = tuple[int, ...]
"""Axis i of the stored tensor is axis order[i] of the tensor as written, as in Transpose's perm."""


@dataclass(frozen=True)
class Reordered:
    """An operator on stored tensors.

    inputs: the order of each input; None: the input is not reordered, or is a broadcast operand of lower rank.
    """

    op: Op
    inputs: tuple[Order | None, ...]
    output: Order


def unchanged(rank: int) -> Order:
    """The order as written."""
    return tuple(range(rank))


def composed(first: Order, second: Order) -> Order:
    """The order of a tensor that is transposed by `first` and then by `second`."""
    return tuple(first[i] for i in second)


def inverse(order: Order) -> Order:
    """The order that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def moved_axes(order: Order, shape: Shape) -> Order:
    """`order` without axes of one element, which can be anywhere."""
    return tuple(a for a in order if not always_equal(shape[a], 1))


def is_same_order(a: Order, b: Order, shape: Shape) -> bool:
    """Whether both orders of a tensor of `shape` store its elements in the same sequence."""
    return a == b or moved_axes(a, shape) == moved_axes(b, shape)


def picked(sizes: Any, order: Order) -> Any:
    """The entries of `sizes`, one for each axis, in `order`."""
    return tuple(sizes[a] for a in order)


def reorder(node: Node, order: Order) -> Reordered | None:
    """The operator of `node` on a first input in `order`, for Elementwise on operands broadcast to `order`.

    None if the operator needs its axes as written.
    """
    rule = _RULES.get(type(node.op))
    if rule is None or len(node.outputs) != 1 or node.epilogue is not None or node.host_dtype is not None:
        return None
    return rule(node, node.op, order)


def source_order(node: Node, order: Order) -> Order | None:
    """The order of the first input for which the output of `node` is in `order`; None if there is none."""
    if isinstance(node.op, Reshape):
        return reshaped_order(node.y.shape, node.x.shape, order)
    by_element = isinstance(node.op, Elementwise) or _looks_up(node)
    return order if by_element or len(node.x.shape) == len(order) else None


def _elementwise(node: Node, op: Any, order: Order) -> Reordered | None:
    rank = len(node.y.shape)
    if len(order) != rank:
        return None
    expr: Expr = op.expr
    if expr.uses_coords:
        expr = replace(expr, instrs=tuple(_on_axis(i, order) for i in expr.instrs))
    made = replace(op, expr=expr, shape=op.shape and picked((1,) * (rank - len(op.shape)) + op.shape, order))
    inputs = [order if v is not None and not v.is_const and len(v.shape) == rank else None for v in node.inputs]
    return Reordered(made, tuple(inputs), order)


def _on_axis(instr: Instr, order: Order) -> Instr:
    """`instr`, with the axis of a coordinate in `order`."""
    axis = instr.args[0]
    if instr.fn != "coord" or not isinstance(axis, Lit):
        return instr
    return replace(instr, args=(replace(axis, value=order.index(int(axis.value))), *instr.args[1:]))


def _alike(node: Node, op: Op, order: Order) -> Reordered:
    """An operator whose inputs and output have the same axes."""
    return Reordered(op, (order,) * len(node.inputs), order)


def _along_axis(node: Node, op: Any, order: Order) -> Reordered:
    return _alike(node, replace(op, axis=order.index(op.axis)), order)


def _slice(node: Node, op: Any, order: Order) -> Reordered:
    return _alike(node, Slice(*(picked(of, order) for of in (op.starts, op.steps, op.sizes))), order)


def _pad(node: Node, op: Any, order: Order) -> Reordered:
    return _alike(node, replace(op, pads=_ends(op.pads, order)), order)


def _ends(pairs: Any, order: Order) -> Any:
    """Begins, then ends, in `order`."""
    return (*picked(pairs[: len(order)], order), *picked(pairs[len(order) :], order))


def _resize(node: Node, op: Any, order: Order) -> Reordered:
    sizes, scales, roi = picked(op.sizes, order), picked(op.scales, order), op.roi and _ends(op.roi, order)
    return _alike(node, replace(op, sizes=sizes, scales=scales, roi=roi), order)


def _reduce(node: Node, op: Any, order: Order) -> Reordered:
    axes = (op.axis,) if isinstance(op, ArgReduce) else op.axes
    placed = tuple(sorted(order.index(a) for a in axes))
    made = replace(op, axis=placed[0]) if isinstance(op, ArgReduce) else replace(op, axes=placed)
    if op.keepdims:
        return Reordered(made, (order,), order)
    left = [a for a in range(len(order)) if a not in axes]
    return Reordered(made, (order,), tuple(left.index(a) for a in order if a in left))


def _gather(node: Node, op: Any, order: Order) -> Reordered | None:
    axis, rank = op.axis, len(node.input(1).shape)
    if _looks_up(node):
        return Reordered(op, (None, order), order) if len(order) == rank else None
    if len(order) != len(node.x.shape):
        return None  # that of the indices
    output: list[int] = []
    for a in order:
        # The axes of the indices take the place of the axis.
        output += range(axis, axis + rank) if a == axis else [a if a < axis else a + rank - 1]
    return Reordered(replace(op, axis=order.index(axis)), (order, None), tuple(output))


def _looks_up(node: Node) -> bool:
    """Whether the node reads single elements of a vector, for each element of its indices."""
    return isinstance(node.op, Gather) and len(node.x.shape) == 1


def _reshape(node: Node, op: Any, order: Order) -> Reordered | None:
    output = reshaped_order(node.x.shape, node.y.shape, order)
    return None if output is None else Reordered(Reshape(picked(node.y.shape, output)), (order,), output)


def reshaped_order(before: Shape, after: Shape, order: Order) -> Order | None:
    """The order in which a reshape stores `after`, of a tensor of shape `before` in `order`; None if it would mix axes.

    Axes that are merged or split stay next to each other and in sequence.
    """
    blocks = _blocks(before, after)
    if blocks is None:
        return None
    block_of = {a: k for k, (old, _) in enumerate(blocks) for a in old}
    left = list(moved_axes(order, before))
    output: list[int] = []
    while left:
        old, new = blocks[block_of[left[0]]]
        whole = [a for a in old if not always_equal(before[a], 1)]
        if left[: len(whole)] != whole:
            return None
        del left[: len(whole)]
        output += new
    for a in range(len(after)):  # axes of one element follow the axis before them
        if a not in output:
            output.insert(output.index(a - 1) + 1 if a else 0, a)
    return tuple(output)


def _blocks(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Axes of both shapes with equal products: the shortest such blocks, in sequence; None if sizes are unknown."""
    old: Shape = hint_of(before)
    new: Shape = hint_of(after)
    if 0 in old:
        return None
    blocks: list[tuple[list[int], list[int]]] = []
    i = k = 0
    while i < len(old) or k < len(new):
        left, right = ([i] if i < len(old) else []), ([k] if k < len(new) else [])
        a, b = old[i] if left else 1, new[k] if right else 1
        i, k = i + len(left), k + len(right)
        if left and right and a != b and 1 in (a, b):  # an axis of one element on one side only
            left, right = ([], right) if b == 1 else (left, [])
            i, k = i - (not left), k - (not right)
            a = b = 1
        while a != b:
            if a < b:
                a, left, i = a * old[i], [*left, i], i + 1
            else:
                b, right, k = b * new[k], [*right, k], k + 1
        if not always_equal(math.prod(before[x] for x in left), math.prod(after[x] for x in right)):
            return None
        blocks.append((left, right))
    return blocks


_RULES: dict[type[Op], Callable[[Node, Any, Order], Reordered | None]] = {
    Elementwise: _elementwise,
    Concat: _along_axis,
    Softmax: _along_axis,
    Cumulative: _along_axis,
    Slice: _slice,
    Pad: _pad,
    Resize: _resize,
    Reduce: _reduce,
    ArgReduce: _reduce,
    Gather: _gather,
    Reshape: _reshape,
}
