"""int8 rows: floats of the last axis as int8, each row followed by its float32 scale (int8 KV caches).

A row of D floats, D a multiple of four, takes D + TAIL bytes: integers from -127 to 127, then a float32 scale, the
row's largest magnitude / 127. The error is at most half a scale, 1/254 of that magnitude. A row with an infinity or NaN
becomes all NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .lazy_array import Array

TAIL = 4
"""Bytes of a scale."""
STEPS = 127
"""Quantization steps up to a row's largest magnitude."""
CACHES = ("model", "int8")
"""Storage of growing KV caches: the model's own type, or int8 rows."""


def refuse_row(size: int) -> str:
    """The reason why rows of `size` floats cannot be stored as int8 rows; '' if such rows can."""
    return "" if size and size % TAIL == 0 else f"rows of {size} numbers are no multiple of {TAIL}"


def to_byte_rows(floats: Array) -> Array:
    """[..., D] floats as int8 [..., D + TAIL]."""
    wide = floats.astype(np.float32, copy=False)
    with np.errstate(invalid="ignore"):
        largest = np.abs(wide).max(-1, keepdims=True, initial=0) + (wide - wide).sum(-1, keepdims=True)
    scale = (largest / np.float32(STEPS)).astype("<f4")
    with np.errstate(divide="ignore", over="ignore"):
        by = np.where(largest > 0, np.float32(STEPS) / largest, np.float32(0))
    usable = np.isfinite(largest) & np.isfinite(by)
    codes = np.rint(np.where(usable, wide, 0) * np.where(usable, by, 0)).astype(np.int8)
    return np.concatenate([codes, scale.view(np.int8)], -1)


def from_byte_rows(rows: Array, dtype: Any = np.float32) -> Array:
    """int8 [..., D + TAIL] as floats [..., D]."""
    size = rows.shape[-1] - TAIL
    scale = np.ascontiguousarray(rows[..., size:]).view("<f4")
    made: Array = (rows[..., :size].astype(np.float32) * scale).astype(dtype, copy=False)
    return made
