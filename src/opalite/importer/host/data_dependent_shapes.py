"""Host operators with data-dependent output shapes, and determinants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from .numpy_ops import HostNode, Step, host_op
from .unique import find_unique


@host_op("NonZero")
def nonzero(node: HostNode) -> Step:
    """Return the coordinates of nonzero elements, one column each."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        array = np.atleast_1d(np.asarray(inputs[0]))  # ONNX treats a scalar as one element
        return [np.asarray(np.nonzero(array), np.int64)]

    return run


@host_op("Unique")
def unique(node: HostNode) -> Step:
    """Return distinct elements or slices, their first positions, the index of each input's value, and counts."""
    axis, is_sorted = node.attrs.get("axis"), int(node.attrs.get("sorted", 1)) == 1

    def run(inputs: Sequence[Any]) -> list[Any]:
        array = np.asarray(inputs[0])
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise ShapeError(f"Unique along axis {axis} of a tensor of shape {list(array.shape)}")
        return node.named(find_unique(array, axis, is_sorted))

    return run


@host_op("Compress")
def compress(node: HostNode) -> Step:
    """Select slices by a condition, which may be longer or shorter than the axis."""
    axis = node.attrs.get("axis")

    def run(inputs: Sequence[Any]) -> list[Any]:
        array, condition = np.asarray(inputs[0]), np.asarray(inputs[1]).reshape(-1)
        if axis is None:
            array = array.reshape(-1)
        elif not -array.ndim <= axis < array.ndim:
            raise ShapeError(f"Compress along axis {axis} of a tensor of shape {list(array.shape)}")
        along = axis or 0
        return [np.take(array, np.flatnonzero(condition[: array.shape[along]]), along)]

    return run


@host_op("Det")
def det(node: HostNode) -> Step:
    """Compute determinants of square matrices in double precision."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        array = np.asarray(inputs[0])
        if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
            raise ShapeError(f"Det needs square matrices, got shape {list(array.shape)}")
        return [np.asarray(np.linalg.det(array.astype(np.float64))).astype(array.dtype)]

    return run
