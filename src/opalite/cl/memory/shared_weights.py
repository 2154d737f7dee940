"""WeightStore: device memory of constants, shared by all sessions that use equal weights.

An entry lives as long as its SharedWeight. A lazy array whose content hash is known (ir/constants/lazy_array.py) is
read only if the device lacks that content.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...cache.hit_counters import count_lookup
from ...ir.constants.lazy_array import LazyArray, content_key
from ..programs.build_parallelism import parallel_map

Array = np.ndarray[Any, Any]


class SharedWeight:
    """Device memory of one constant; the memory lives as long as this object."""

    __slots__ = ("__weakref__", "array", "digest", "memory")

    def __init__(self, memory: Any, array: Array | None) -> None:
        self.memory = memory
        self.array = array  # host memory that `memory` wraps
        self.digest = ""  # of the contents, if known


class WeightStore:
    """Device constants of one context by content. Thread-safe."""

    def __init__(self, upload: Callable[[Array, bool], SharedWeight]) -> None:
        """upload(array, as_image): copies an array to the device."""
        self._upload = upload
        self._held: weakref.WeakValueDictionary[tuple[str, bool], SharedWeight] = weakref.WeakValueDictionary()
        self._wrapped: weakref.WeakValueDictionary[int, SharedWeight] = weakref.WeakValueDictionary()  # by its array
        self._lock = threading.Lock()
        self.hits = 0

    def find(self, array: Array | LazyArray) -> SharedWeight | None:
        """The device memory with the contents of lazy `array`, by its digest; None if digest or memory is missing."""
        digest = array.contents.digest if isinstance(array, LazyArray) else ""
        with self._lock:
            return (self._held.get((digest, False)) or self._held.get((digest, True))) if digest else None

    def has(self, array: Array | LazyArray) -> bool:
        """Return whether `find` finds any."""
        return self.find(array) is not None

    def get(self, array: Array | LazyArray, *, image: bool = False, key: str | None = None) -> SharedWeight:
        """Device memory with the contents of `array`, uploaded unless present. image: as texels [height, width, 4].

        A lazy array is read if it must be uploaded or its digest is unknown. key: identifies the content (a file's
        digest and an offset) and saves hashing it.
        """
        if not isinstance(array, LazyArray):
            return self._get(lambda: array, "", image, key)
        known = array.contents
        found = self._get(array.read, known.digest, image, key)
        known.digest = known.digest or found.digest
        return found

    def _get(self, read: Callable[[], Array], digest: str, image: bool, key: str | None) -> SharedWeight:
        """digest: of the contents; '' if unknown."""
        array = None
        if not digest:
            array = read()
            with self._lock:
                known = None if image else self._wrapped.get(id(array))
                if known is not None and known.array is array:
                    count_lookup("weights", True)
                    self.hits += 1
                    return known
            if not key:
                digest = content_key(array, parallel_map)
        name = (digest or key or "", image)
        with self._lock:
            found = self._held.get(name)
            count_lookup("weights", found is not None)
            if found is not None:
                self.hits += 1
                return found
            array = read() if array is None else array
            made = self._upload(array, image)
            made.digest = digest
            self._held[name] = made
            if made.array is array:
                self._wrapped[id(array)] = made
            return made

    def __len__(self) -> int:
        return len(self._held)
