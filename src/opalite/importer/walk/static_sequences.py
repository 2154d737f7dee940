"""Sequences with statically known elements, which cost nothing at run time.

A sequence built in the graph (SplitToSequence, SequenceConstruct, SequenceInsert...) is a tuple of names in the
GraphWalk; reading an element gives the named tensor. A sequence that is an input, or changes at an unknown position, is
a Python list on the host, and its operators run there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ops.operator import normalize_axis
from ..host.sequences import checked_position, piece_sizes, position_of
from .graph_walk import Control, GraphWalk
from .internal_ops import internal_node
from .name_scopes import Item, make_item


def visit_construct(walk: GraphWalk, item: Item) -> None:
    """Import SequenceConstruct: the inputs are the elements."""
    walk.sequences[item.outputs[0]] = item.inputs


def visit_empty(walk: GraphWalk, item: Item) -> None:
    """Import SequenceEmpty."""
    walk.sequences[item.outputs[0]] = ()


def visit_insert(walk: GraphWalk, item: Item) -> None:
    """Import SequenceInsert: at the end, or before a known position."""
    names = walk.sequences.get(item.inputs[0])
    at = len(names or ()) if len(item.inputs) < 3 or not item.inputs[2] else _position(walk, item, 2)
    if names is None or at is None:
        walk.visit_operator(item)
        return
    at = checked_position(at, len(names), len(names), item.node.label)
    walk.sequences[item.outputs[0]] = (*names[:at], item.inputs[1], *names[at:])


def visit_erase(walk: GraphWalk, item: Item) -> None:
    """Import SequenceErase: the last element, or the one at a known position."""
    names = walk.sequences.get(item.inputs[0])
    at = -1 if len(item.inputs) < 2 or not item.inputs[1] else _position(walk, item, 1)
    if names is None or at is None:
        walk.visit_operator(item)
        return
    at = checked_position(at, len(names), len(names) - 1, item.node.label)
    walk.sequences[item.outputs[0]] = (*names[:at], *names[at + 1 :])


def visit_at(walk: GraphWalk, item: Item) -> None:
    """Import SequenceAt: the tensor at a known position."""
    names = walk.sequences.get(item.inputs[0])
    at = _position(walk, item, 1)
    if names is None or at is None:
        walk.visit_operator(item)
        return
    element = names[checked_position(at, len(names), len(names) - 1, item.node.label)]
    _emit(walk, item, "PassThrough", (element,), item.outputs[0], {})


def visit_length(walk: GraphWalk, item: Item) -> None:
    """Import SequenceLength: a constant."""
    names = walk.sequences.get(item.inputs[0])
    if names is None:
        walk.visit_operator(item)
    else:
        walk.bind(item.outputs[0], walk.builder.constant(np.asarray(len(names), np.int64), item.outputs[0]))


def visit_concat(walk: GraphWalk, item: Item) -> None:
    """Import ConcatFromSequence: concatenates the elements along an existing or a new axis."""
    names = walk.sequences.get(item.inputs[0])
    if names is None:
        walk.visit_operator(item)
        return
    if not names:
        raise ShapeError(f"{item.node.label} joins a sequence without elements")
    op = "Stack" if item.node.attrs.get("new_axis") else "Join"
    _emit(walk, item, op, names, item.outputs[0], {"axis": item.node.attrs.get("axis", 0)})


def visit_split(walk: GraphWalk, item: Item) -> None:
    """Import SplitToSequence: pieces of known size."""
    whole = None if item.inputs[0] in walk.deferred else walk.lookup(item.inputs[0])
    given = len(item.inputs) > 1 and bool(item.inputs[1])
    split = _known(walk, item, 1) if given else None
    if whole is None or (given and split is None):
        walk.visit_operator(item)
        return
    axis = normalize_axis(int(item.node.attrs.get("axis", 0)), len(whole.shape))
    size = whole.shape[axis]
    squeeze = not given and not item.node.attrs.get("keepdims", 1)
    pieces = []
    start = 0
    for i, length in enumerate(piece_sizes(split, size, item.node.label)):
        name = f"{item.outputs[0]}{walk.separator}{i}"
        op, attrs = ("Take", {"axis": axis, "index": start}) if squeeze else ("Cut", {"axis": axis, "start": start})
        _emit(walk, item, op, (item.inputs[0],), name, attrs if squeeze else {**attrs, "length": length})
        pieces.append(name)
        start += length
    walk.sequences[item.outputs[0]] = tuple(pieces)


def _emit(walk: GraphWalk, item: Item, op: str, inputs: tuple[str, ...], output: str, attrs: Mapping[str, Any]) -> None:
    walk.visit(make_item(internal_node(op, item.node.name, inputs, output, attrs)))


def _known(walk: GraphWalk, item: Item, i: int) -> Any:
    """Return the contents of input `i`; None if they are unknown in this segment."""
    name = item.inputs[i]
    return None if name in walk.deferred or name in walk.objects else walk.find_contents(item, name)


def _position(walk: GraphWalk, item: Item, i: int) -> int | None:
    array = _known(walk, item, i)
    return None if array is None else position_of(array, item.node.label)


SEQUENCES: dict[str, Control] = {
    "SequenceConstruct": visit_construct,
    "SequenceEmpty": visit_empty,
    "SequenceInsert": visit_insert,
    "SequenceErase": visit_erase,
    "SequenceAt": visit_at,
    "SequenceLength": visit_length,
    "ConcatFromSequence": visit_concat,
    "SplitToSequence": visit_split,
}
"""Importers of the sequence operators."""
