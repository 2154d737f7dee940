"""BufferPool: best-fit pool of reusable buffers, as MNN's BufferPool. Needs no OpenCL."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Generic, TypeVar

M = TypeVar("M")


class BufferPool(Generic[M]):
    """Buffers by size. `acquire` returns the smallest free one that is large enough, or makes one by `make(nbytes)`."""

    def __init__(self, make: Callable[[int], M]) -> None:
        self._make = make
        self._free: list[tuple[int, int]] = []  # (size, number), sorted
        self._all: list[tuple[int, M]] = []  # by number
        self._numbers: dict[int, int] = {}  # by id of the buffer

    @property
    def total_bytes(self) -> int:
        """Bytes of all buffers made."""
        return sum(size for size, _ in self._all)

    def acquire(self, nbytes: int, separate: bool = False) -> M:
        """A buffer of at least `nbytes`. separate: always make one, for memory that the caller keeps bound."""
        at = bisect.bisect_left(self._free, (nbytes, -1))
        if not separate and at < len(self._free):
            _, number = self._free.pop(at)
            return self._all[number][1]
        made = self._make(nbytes)
        self._numbers[id(made)] = len(self._all)
        self._all.append((nbytes, made))
        return made

    def release(self, buffer: M) -> None:
        """Make a buffer free again. Raises KeyError for another pool's buffer, ValueError if it is free already."""
        number = self._numbers[id(buffer)]
        entry = (self._all[number][0], number)
        if entry in self._free:
            raise ValueError("a buffer was released twice")
        bisect.insort(self._free, entry)
