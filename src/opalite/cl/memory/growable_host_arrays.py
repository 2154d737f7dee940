"""GrowableHostArrays: the arrays in host memory that show the valid part of a GrowableDeviceTensor."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .growable_device_tensor import GrowableDeviceTensor

Array = np.ndarray[Any, Any]


class GrowableHostArrays:
    """Arrays of one tensor, for callers: views of its memory where the host shares it, else of a mirror.

    A mirror gets new positions alone, and its arrays are read-only. is_mirror: whether there is one.
    """

    def __init__(self, source: GrowableDeviceTensor) -> None:
        self.source = source
        self._tensor = source.tensor
        shared = source.shared()
        self.is_mirror = shared is None
        self._whole = np.empty(source.shape_at(source.capacity), source.dtype) if shared is None else shared
        self._owner = self._whole if self._whole.base is None else self._whole.base
        self._address = _address(self._whole)
        self._mirrored = 0  # positions of the mirror that are those of the tensor
        self._unseen = sys.getrefcount(self._owner)

    def shows(self, source: GrowableDeviceTensor) -> bool:
        """Whether these are the arrays of `source` in the memory that it has now."""
        return source is self.source and source.tensor is self._tensor

    @property
    def seen(self) -> int:
        """The number of arrays of others that show the memory; arrays made of these count."""
        return sys.getrefcount(self._owner) - self._unseen

    def has(self, array: Array) -> bool:
        """Whether `array` shows positions of the tensor from the first on, wherever it was passed through."""
        whole, axis = self._whole, self.source.axis
        shape = array.shape
        if array.dtype != whole.dtype or len(shape) != whole.ndim or _address(array) != self._address:
            return False
        if shape[axis] > self.source.length or shape != self.source.shape_at(shape[axis]):
            return False
        return all(d == 1 or a == b for d, a, b in zip(shape, array.strides, whole.strides, strict=True))

    def cut(self, length: int) -> None:
        """Cut the tensor to its first positions."""
        self.source.length = length
        self._mirrored = min(self._mirrored, length)

    def update(self) -> Any:
        """Copy new positions to a mirror. The caller keeps the result until the queue has finished."""
        if not self.is_mirror:
            return None
        first, self._mirrored = min(self._mirrored, self.source.length), self.source.length
        return self.source.read_positions(self._whole, first)

    def array(self) -> Array:
        """The valid part, after `update`."""
        source = self.source
        found: Array = self._whole[(slice(None),) * source.axis + (slice(source.length),)]
        if self.is_mirror:
            found.flags.writeable = False
        return found


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
