"""Constants on the device, shared: sessions that hold equal weights hold the same memory.

An entry lives as long as someone keeps the SharedWeight that `get` returned. What is stored elsewhere is not read where
it is known what it contains (ir/constants/content_hash.py), and the device has that.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...cache.hit_counters import count_lookup
from ...ir.constants.content_hash import content_key
from ...ir.constants.lazy_array import LazyArray
from ..programs.build_parallelism import parallel_map

Array = np.ndarray[Any, Any]


class SharedWeight:
    """Device memory of one constant. Keep it as long as the memory is in use."""

    __slots__ = ("__weakref__", "array", "digest", "memory")

    def __init__(self, memory: Any, array: Array | None) -> None:
        self.memory = memory
        self.array = array  # host memory that `memory` wraps, kept alive with it
        self.digest = ""  # of the contents, where it is known


class WeightStore:
    """Constants of one context by content. Thread-safe."""

    def __init__(self, upload: Callable[[Array, bool], SharedWeight]) -> None:
        """`upload(array, as_image)` puts an array on the device."""
        self._upload = upload
        self._held: weakref.WeakValueDictionary[tuple[str, bool], SharedWeight] = weakref.WeakValueDictionary()
        self._wrapped: weakref.WeakValueDictionary[int, SharedWeight] = weakref.WeakValueDictionary()  # by its array
        self._lock = threading.Lock()
        self.hits = 0

    def find(self, array: Array | LazyArray) -> SharedWeight | None:
        """What holds the contents of `array`, where that is known without reading them; None if nothing does."""
        digest = array.contents.digest if isinstance(array, LazyArray) else ""
        with self._lock:
            return (self._held.get((digest, False)) or self._held.get((digest, True))) if digest else None

    def has(self, array: Array | LazyArray) -> bool:
        """Whether `find` finds any."""
        return self.find(array) is not None

    def get(self, array: Array | LazyArray, *, image: bool = False, key: str | None = None) -> SharedWeight:
        """Memory holding `array`; uploaded unless an equal one is held. `image`: as texels [height, width, 4].

        An array that lies elsewhere is brought to memory if it has to be uploaded, or nobody knows what it contains.
        `key` names the content where the caller knows it already (a file's digest and an offset); it spares hashing.
        """
        if not isinstance(array, LazyArray):
            return self._get(lambda: array, "", image, key)
        known = array.contents
        found = self._get(array.read, known.digest, image, key)
        known.digest = known.digest or found.digest
        return found

    def _get(self, read: Callable[[], Array], digest: str, image: bool, key: str | None) -> SharedWeight:
        """digest: of the contents, where it is known; '' else."""
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
