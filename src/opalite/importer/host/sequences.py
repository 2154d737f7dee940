"""Host operators on sequences, which are lists of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Array
from ...ops.operator import normalize_axis
from ..proto.decode import elem_dtype
from .numpy_ops import HostNode, Step, host_op, host_step


def position_of(value: Any, op_type: str) -> int:
    """Return the one integer of a position tensor."""
    at = np.asarray(value)
    if at.size != 1:
        raise ShapeError(f"the position of {op_type} must hold one element, got shape {list(at.shape)}")
    return int(at.reshape(()))


def checked_position(position: int, length: int, last: int, op_type: str) -> int:
    """Return `position` counted from the front; ShapeError outside -length to `last`."""
    if not -length <= position <= last:
        expected = f"expected {-length} to {last}" if last >= -length else "it has no element"
        raise ShapeError(f"{op_type} has position {position} in a sequence of {length}; {expected}")
    return position + length if position < 0 else position


def piece_sizes(split: Array | None, size: int, op_type: str) -> list[int]:
    """Return the piece sizes of an axis of `size`: all 1 (None), all equal (scalar), or as given (vector)."""
    if split is None:
        return [1] * size
    if split.ndim == 0:
        step = int(split)
        if step < 1:
            raise ShapeError(f"{op_type} splits into pieces of {step}; expected 1 or more")
        return [min(step, size - start) for start in range(0, size, step)]
    sizes = [int(n) for n in split.reshape(-1)]
    if sum(sizes) != size or any(n < 0 for n in sizes):
        raise ShapeError(f"{op_type} splits an axis of size {size} into {sizes}")
    return sizes


@host_step("SequenceConstruct")
def sequence_construct(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Make a sequence of the inputs, which must have one element type."""
    for element in inputs[1:]:
        _check_type(element, inputs, node.op_type)
    return [list(inputs)]


@host_op("SequenceEmpty")
def sequence_empty(node: HostNode) -> Step:
    """Make an empty sequence; its type `dtype` is checked only."""
    elem_dtype(int(node.attrs.get("dtype", 1)))  # raises for an invalid type
    return lambda inputs: [[]]


@host_step("SequenceInsert")
def sequence_insert(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Insert a tensor before a position, or at the end."""
    elements, tensor = inputs[0], inputs[1]
    _check_type(tensor, elements, node.op_type)
    count = len(elements)
    given = len(inputs) > 2 and inputs[2] is not None
    at = checked_position(position_of(inputs[2], node.op_type), count, count, node.op_type) if given else count
    return [[*elements[:at], tensor, *elements[at:]]]


@host_step("SequenceErase")
def sequence_erase(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Remove the element at a position, or the last one."""
    elements = inputs[0]
    given = len(inputs) > 1 and inputs[1] is not None
    at = position_of(inputs[1], node.op_type) if given else -1
    at = checked_position(at, len(elements), len(elements) - 1, node.op_type)
    return [[*elements[:at], *elements[at + 1 :]]]


@host_step("SequenceAt")
def sequence_at(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Return the element at a position, which may be negative."""
    elements, position = inputs
    at = position_of(position, node.op_type)
    return [elements[checked_position(at, len(elements), len(elements) - 1, node.op_type)]]


@host_op("SequenceLength")
def sequence_length(node: HostNode) -> Step:
    """Return the number of elements."""
    return lambda inputs: [np.asarray(len(inputs[0]), np.int64)]


@host_step("ConcatFromSequence")
def concat_from_sequence(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Concatenate the elements along an axis; with `new_axis`, stack them."""
    axis, is_new = int(node.attrs.get("axis", 0)), bool(node.attrs.get("new_axis", 0))
    elements: list[Array] = inputs[0]
    if not elements:
        raise ShapeError("ConcatFromSequence joins a sequence without elements")
    along = normalize_axis(axis, elements[0].ndim + is_new)
    shapes = {a.shape if is_new else a.shape[:along] + a.shape[along + 1 :] for a in elements}
    if len(shapes) > 1 or len({a.ndim for a in elements}) > 1:
        got = ", ".join(str(list(a.shape)) for a in elements[:8])
        raise ShapeError(f"ConcatFromSequence joins shapes that differ outside axis {along}: {got}")
    return [np.stack(elements, along) if is_new else np.concatenate(elements, along)]


@host_step("SplitToSequence")
def split_to_sequence(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Split x along an axis: into given sizes, or into slices, which lose the axis unless `keepdims`."""
    axis, keeps = int(node.attrs.get("axis", 0)), bool(node.attrs.get("keepdims", 1))
    x = np.asarray(inputs[0])
    split = inputs[1] if len(inputs) > 1 else None
    along = normalize_axis(axis, x.ndim)
    sizes = piece_sizes(None if split is None else np.asarray(split), x.shape[along], node.op_type)
    pieces = np.split(x, np.cumsum(sizes)[:-1], along) if sizes else []
    return [[p.copy() if keeps or split is not None else np.squeeze(p, along).copy() for p in pieces]]


def _check_type(tensor: Array, elements: Sequence[Array], op_type: str) -> None:
    if elements and np.asarray(tensor).dtype != np.asarray(elements[0]).dtype:
        raise ShapeError(
            f"{op_type} has a tensor of {np.asarray(tensor).dtype} for a sequence of {np.asarray(elements[0]).dtype}"
        )
