"""The constant right side of a product in panels of columns, as GPUs' register tiles read it."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Value
from ..kernel import Weight, ceil_div
from ..weight_packing import pack_panels


def columns_weight(b: Value, turned: bool, columns: int, depth: int) -> Weight:
    """The one matrix of `b`, [K, N], or [N, K] if `turned`, as [panels, K in whole `depth`s, `columns`].

    Zeros fill what is past K and N.
    """
    n, k = b.shape[-2:] if turned else b.shape[:-3:-1]
    dtype = np.dtype(b.type.storage.np)
    shape = ceil_div(n, columns), ceil_div(k, depth) * depth, columns
    form = f"{'nk' if turned else 'kn'} panels of {columns} columns by {depth} {b.type.storage}"
    return Weight(b, form, lambda held: pack_panels(held, shape, turned, dtype), by_slices=True, made=(dtype, shape))
