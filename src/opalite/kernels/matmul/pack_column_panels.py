"""Packs the constant right side of a product in column panels for GPU register tiles."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Value
from ..launch import Weight, ceil_div
from ..weight_packing import pack_panels


def columns_weight(b: Value, transposed: bool, columns: int, depth: int) -> Weight:
    """The matrix `b` ([K, N], or [N, K] if `transposed`) as [panels, K padded to `depth`, `columns`], zero-padded."""
    n, k = b.shape[-2:] if transposed else b.shape[:-3:-1]
    dtype = np.dtype(b.type.storage.np)
    shape = ceil_div(n, columns), ceil_div(k, depth) * depth, columns
    form = f"{'nk' if transposed else 'kn'} panels of {columns} columns by {depth} {b.type.storage}"
    return Weight(
        b, form, lambda held: pack_panels(held, shape, transposed, dtype), by_slices=True, packed_type=(dtype, shape)
    )
