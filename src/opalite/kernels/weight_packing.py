"""Host-side weight packing that several kernel families share: channel-packed arrays and matrix panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DeviceError
from ..ir.constants.lazy_array import LazyArray, page_zeros, read_slices, reshaped
from ..ir.graph import Value
from ..ir.place import Layout, texel_dims
from .launch import Weight, ceil_div

Array = np.ndarray[Any, Any]


def pack_array(array: Array, layout: Layout) -> Array:
    """`array` [N, C, D...] in `layout`: [N, ceil(C/c), D..., c] with lanes past C zero, or unchanged if row-major."""
    if layout.is_row_major:
        return np.ascontiguousarray(array)
    if layout.is_image:
        array = to_texel_dims(array)
    n, c, *rest = array.shape
    pack = layout.pack
    whole, left = divmod(c, pack)
    out = page_zeros((n, whole + (left > 0), *rest, pack), array.dtype)
    blocks = np.moveaxis(out, -1, 2)
    blocks[:, :whole] = array[:, : whole * pack].reshape(n, whole, pack, *rest)
    if left:
        blocks[:, whole, :left] = array[:, whole * pack :]
    return out


def unpack_array(stored: Array, shape: Sequence[int], layout: Layout) -> Array:
    """The inverse of `pack_array`. DeviceError if lanes past C are not zero, on which kernels rely."""
    if layout.is_row_major:
        return stored.reshape(shape)
    n, c, *rest = texel_dims(tuple(shape)) if layout.is_image else shape
    full = np.moveaxis(stored.reshape(layout.storage_shape(tuple(shape))), -1, 2).reshape(
        n, -(-c // layout.pack) * layout.pack, *rest
    )
    if np.any(full[:, c:] != 0):
        raise DeviceError(f"lanes past the {c} channels of a {layout} tensor are not zero")
    found = np.ascontiguousarray(full[:, :c])
    return np.ascontiguousarray(found.swapaxes(1, 2).reshape(shape)) if layout.is_image and len(shape) < 4 else found


def to_texel_dims(array: Array) -> Array:
    """`array` reshaped to the four dimensions of its image (`texel_dims`)."""
    n, c, h, w = texel_dims(array.shape)
    return array if array.ndim == 4 else array.reshape(n, h, c, w).swapaxes(1, 2)


def one_matrix(held: Array | LazyArray) -> Array | LazyArray:
    """The single matrix of a stack, without a copy."""
    shape = held.shape[-2:]
    if len(held.shape) == 2:
        return held
    return reshaped(held, shape) if isinstance(held, LazyArray) else held.reshape(shape)


def pack_panels(held: Array | LazyArray, shape: tuple[int, int, int], transposed: bool, dtype: Any) -> Array:
    """The matrix [K, N] of `held` ([N, K] if `transposed`) as column panels [panels, rows, columns] of `shape`.

    Zeros fill panels past K and N. `held` is read in slices.
    """
    columns = shape[2]
    matrix, out = one_matrix(held), page_zeros(shape, dtype)
    for part, found in read_slices(matrix, columns if transposed else 1):
        if transposed:
            first = part.start // columns
            whole, left = divmod(len(found), columns)
            across = found[: whole * columns].reshape(whole, columns, found.shape[1]).swapaxes(1, 2)
            out[first : first + whole, : found.shape[1]] = across
            if left:
                out[first + whole, : found.shape[1], :left] = found[whole * columns :].T
        else:
            whole, left = divmod(found.shape[1], columns)
            across = found[:, : whole * columns].reshape(len(found), whole, columns).swapaxes(0, 1)
            out[:whole, part] = across
            if left:
                out[whole, part, :left] = found[:, whole * columns :]
    return out


def columns_weight(b: Value, transposed: bool, columns: int, depth: int) -> Weight:
    """The matrix `b` ([K, N], or [N, K] if `transposed`) as [panels, K padded to `depth`, `columns`], zero-padded."""
    n, k = b.shape[-2:] if transposed else b.shape[:-3:-1]
    dtype = np.dtype(b.type.storage.np)
    shape = ceil_div(n, columns), ceil_div(k, depth) * depth, columns
    form = f"{'nk' if transposed else 'kn'} panels of {columns} columns by {depth} {b.type.storage}"
    return Weight(
        b, form, lambda held: pack_panels(held, shape, transposed, dtype), by_slices=True, packed_type=(dtype, shape)
    )
