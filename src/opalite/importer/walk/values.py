"""Incoming values: arrays, or types alone if a model is imported without data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError

Array = np.ndarray[Any, Any]


class ContentsNeededError(ShapeError):
    """Shapes depend on contents, but only types were fed."""


def as_array(name: str, value: Any) -> Array:
    """Return the contents of a value as an array; ContentsNeededError if only its type was given."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__array__"):
        raise ContentsNeededError(
            f"shapes of the model depend on the contents of '{name}': give an array, not only its type"
        )
    return np.asarray(value)
