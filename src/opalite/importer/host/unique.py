"""Unique on the host: what differs along an axis, sorted or in the order of its first occurrence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def find_unique(x: Array, axis: int | None, is_sorted: bool) -> list[Array]:
    """What Unique gives: the different slices of `x` along `axis` (elements of the flattened tensor if None), the
    position of each one's first occurrence, for each slice of `x` which of them it is, and how often each occurs.
    """
    slices = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    count = slices.shape[0]
    if axis is None:
        _, first, inverse, counts = np.unique(slices, return_index=True, return_inverse=True, return_counts=True)
    else:
        rows = slices.reshape(count, math.prod(slices.shape[1:]))
        # By ranks, so that texts, which NumPy does not order by rows, are treated as numbers are.
        ranks = np.unique(rows, return_inverse=True)[1].reshape(rows.shape)
        if not rows.shape[1]:
            ranks = np.zeros((count, 1), np.int64)  # slices without elements are all equal
        _, first, inverse, counts = np.unique(ranks, axis=0, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        first, counts, inverse = first[order], counts[order], place[inverse]
    found = slices[first]
    y = found if axis is None else np.moveaxis(found, 0, axis)
    return [np.ascontiguousarray(y), *(np.asarray(a, np.int64) for a in (first, inverse, counts))]
