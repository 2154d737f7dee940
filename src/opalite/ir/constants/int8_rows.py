"""Byte rows: floats of the last axis as int8, each row followed by the scale that they are multiples of.

A row of D floats, D a multiple of four, is D + TAIL bytes: numbers from -127 to 127, then a float32, its largest
magnitude / 127. A float is off by half a scale at most, 1/254 of that magnitude. A row with an infinity or NaN is all
NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TAIL = 4
"""Bytes of a scale."""
STEPS = 127
"""Of a row's largest magnitude."""
CACHES = ("model", "int8")
"""How a state may keep the caches that grow: as the model has them, or as such rows."""


def refuse_row(size: int) -> str:
    """Why rows of `size` floats have no such form; '' if they have."""
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
