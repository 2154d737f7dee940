"""Unique on the host: distinct slices along an axis, sorted or in order of first occurrence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def find_unique(x: Array, axis: int | None, is_sorted: bool) -> list[Array]:
    """Return distinct slices of `x` along `axis`, their first positions, the index per slice of `x`, and counts.

    axis: None for the elements of the flattened tensor.
    """
    slices = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    count = slices.shape[0]
    if axis is None:
        _, first, inverse, counts = np.unique(slices, return_index=True, return_inverse=True, return_counts=True)
    else:
        rows = slices.reshape(count, math.prod(slices.shape[1:]))
        # Ranks also order strings by rows, which NumPy cannot.
        ranks = np.unique(rows, return_inverse=True)[1].reshape(rows.shape)
        if not rows.shape[1]:
            ranks = np.zeros((count, 1), np.int64)  # empty slices are all equal
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
