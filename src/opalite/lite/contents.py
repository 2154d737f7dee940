"""Contents of tensors: zeros, and text, which is bytes to LiteRT and str to a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..importer.tflite.read.tensors import TensorInfo
from ..ir.dtype import DType

Array = np.ndarray[Any, Any]


def blank(info: TensorInfo, shape: Sequence[int]) -> Array:
    """Return zeros, or empty strings."""
    if info.dtype is None or info.dtype is DType.STRING:
        return np.full(shape, "", object)
    return np.zeros(shape, info.dtype.np)


def as_text(array: Array) -> Array:
    """Return text as str."""
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1)]
    return found


def as_bytes(array: Array) -> Array:
    """Return text as bytes; other arrays as they are."""
    if array.dtype != object:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [v.encode() if isinstance(v, str) else v for v in array.reshape(-1)]
    return found
