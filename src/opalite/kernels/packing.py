"""Arrays as a channel-packed layout stores them, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DeviceError
from ..ir.place import Layout

Array = np.ndarray[Any, Any]


def pack_array(array: Array, layout: Layout) -> Array:
    """`array` (N,C,D...) as `layout` stores it: [N, ceil(C/c), D..., c] with lanes past C zero, or as it is."""
    if layout.is_row_major:
        return np.ascontiguousarray(array)
    n, c, *rest = array.shape
    blocks = -(-c // layout.pack)
    out = np.zeros((n, blocks * layout.pack, *rest), array.dtype)
    out[:, :c] = array
    return np.ascontiguousarray(np.moveaxis(out.reshape(n, blocks, layout.pack, *rest), 2, -1))


def unpack_array(stored: Array, shape: Sequence[int], layout: Layout) -> Array:
    """The inverse of `pack_array`. DeviceError if lanes past C are not zero, which readers rely on."""
    if layout.is_row_major:
        return stored.reshape(shape)
    n, c, *rest = shape
    full = np.moveaxis(stored.reshape(layout.storage_shape(tuple(shape))), -1, 2).reshape(
        n, -(-c // layout.pack) * layout.pack, *rest
    )
    if np.any(full[:, c:] != 0):
        raise DeviceError(f"lanes past the {c} channels of a {layout} tensor are not zero")
    return np.ascontiguousarray(full[:, :c])
