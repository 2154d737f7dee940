"""Box: arrays in a file without a name that two processes map, so that they go through no pipe."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_ALIGN = 64
_IN_MEMORY = Path("/dev/shm")


class Place(NamedTuple):
    """Where an array lies in a box."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


class Box:
    """One process puts arrays, the other gets them, in turns; each has a Box of the same file.

    What is no array of numbers (text, lists, scalars) is handed on as it is, in the list that `put` returns.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """descriptor: of the file that the other process has made; None makes one, which ends with both."""
        if descriptor is None:
            folder = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
            with tempfile.TemporaryFile(dir=folder) as file:
                descriptor = os.dup(file.fileno())
        self.descriptor = descriptor
        self._size = 0
        self._map: mmap.mmap | None = None
        self.close = weakref.finalize(self, os.close, descriptor)

    def put(self, values: Sequence[Any]) -> tuple[int, list[Any]]:
        """Copy arrays into the file, over what was there, and say what the other process is to `get`."""
        places: list[Any] = []
        end = 0
        for value in values:
            if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.nbytes:
                places.append(Place(value.dtype, value.shape, end))
                end += -(-value.nbytes // _ALIGN) * _ALIGN
            else:
                places.append(value)
        if end > self._size:
            os.ftruncate(self.descriptor, end)
        self._reach(max(end, self._size))
        for value, place in zip(values, places, strict=True):
            if isinstance(place, Place):
                self._view(place)[...] = value
        return self._size, places

    def get(self, put: tuple[int, list[Any]]) -> list[tuple[Any, bool]]:
        """What was put, and whether it is a view, which the next `put` writes over."""
        size, places = put
        self._reach(size)
        return [(self._view(p), True) if isinstance(p, Place) else (p, False) for p in places]

    def _view(self, place: Place) -> np.ndarray[Any, Any]:
        assert self._map is not None
        return np.ndarray(place.shape, place.dtype, self._map, place.offset)

    def _reach(self, size: int) -> None:
        """Map the file's first `size` bytes. Arrays in the map before keep that one alive."""
        if size > self._size:
            self._map = mmap.mmap(self.descriptor, size)
            self._size = size
