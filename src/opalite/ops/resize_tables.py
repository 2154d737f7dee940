"""Tables that Resize kernels read: offsets in the input and weights for each output position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .operator import Array
from .resize import Resize
from .resize_weights import Taps, axis_taps, is_untouched

COPIED = -1
"""`taps` of an axis that is copied unchanged, with its positions in the table."""


@dataclass(frozen=True)
class Axis:
    """One axis as kernels see it: sizes in x and y.

    taps: the number of the axis of x, from 1 on; 0 if it is copied and has no entries in the table.
    """

    size: int
    count: int
    taps: int


def merged_axes(op: Resize, sizes: Sequence[int], counts: Sequence[int], rank: int = 0) -> list[Axis]:
    """Axes with copied neighbours merged into one; at least one.

    sizes, counts: of x and y as stored. rank: pad with axes of one element to this number, and give the last axis
    entries in any case; 0: neither.
    """
    merged: list[Axis] = []
    for a, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if (copied := is_untouched(op, a)) and merged and not merged[-1].taps:
            merged[-1] = Axis(merged[-1].size * size, merged[-1].count * count, 0)
        else:
            merged.append(Axis(size, count, 0 if copied else a + 1))
    merged = merged or [Axis(1, 1, 0)]
    if rank and not merged[-1].taps:
        merged[-1] = Axis(merged[-1].size, merged[-1].count, COPIED)
    return [Axis(1, 1, 0)] * (rank - len(merged)) + merged


def taps_of(op: Resize) -> int:
    """Elements of x that an element of y reads along each axis, without antialiasing."""
    return {"nearest": 1, "linear": 2, "cubic": 4}[op.mode]


def offset_table(op: Resize, shape: Sequence[int], sizes: Sequence[int], counts: Sequence[int], rank: int = 0) -> Array:
    """`axes` of vision/resize.cl: a header of four numbers for each axis, then the entries of all taps.

    shape: of x. sizes, counts, rank: as for `merged_axes`.
    """
    axes = merged_axes(op, sizes, counts, rank)
    header: list[tuple[int, int, int, int]] = []
    offsets: list[Array] = []
    start = 4 * len(axes)
    for k, axis in enumerate(axes):
        stride = math.prod(a.size for a in axes[k + 1 :])
        if not axis.taps:
            header.append((axis.count, stride, 1, 0))
            continue
        taps = _taps(op, shape, axis)
        index = np.where(taps.inside[:, None], taps.index * stride, -1)
        header.append((axis.count, stride, index.shape[1], start))
        offsets.append(index.ravel().astype(np.int32))
        start += index.size
    return np.concatenate([np.array(header, np.int32).ravel(), *offsets])


def weight_table(op: Resize, shape: Sequence[int], sizes: Sequence[int], counts: Sequence[int], rank: int = 0) -> Array:
    """`weights` of vision/resize.cl, one for each entry of `offset_table`."""
    axes = merged_axes(op, sizes, counts, rank)
    weights = [_taps(op, shape, a).weight.ravel() for a in axes if a.taps]
    return np.concatenate([np.zeros(4 * len(axes), np.float32), *weights])


def _taps(op: Resize, shape: Sequence[int], axis: Axis) -> Taps:
    if axis.taps != COPIED:
        return axis_taps(op, axis.taps - 1, shape[axis.taps - 1])
    each = np.arange(axis.count, dtype=np.int32)[:, None]
    return Taps(each, np.ones(each.shape, np.float32), each[:, 0] >= 0)
