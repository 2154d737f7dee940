"""Pools of buffers that are handed out and taken back: best fit, as MNN's BufferPool.

Needs no OpenCL: a pool is given the function that makes an object.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Generic, TypeVar

M = TypeVar("M")


class BufferPool(Generic[M]):
    """Buffers by size: `take` gives the smallest free one that is large enough, or makes one."""

    def __init__(self, make: Callable[[int], M]) -> None:
        self._make = make
        self._free: list[tuple[int, int]] = []  # (size, number), sorted
        self._all: list[tuple[int, M]] = []  # by number
        self._numbers: dict[int, int] = {}  # id of an object to its number

    @property
    def total_bytes(self) -> int:
        """Bytes of every buffer made."""
        return sum(size for size, _ in self._all)

    def take(self, nbytes: int, separate: bool = False) -> M:
        """A buffer of at least `nbytes`. `separate` never reuses one: for memory that the caller keeps bound."""
        at = bisect.bisect_left(self._free, (nbytes, -1))
        if not separate and at < len(self._free):
            _, number = self._free.pop(at)
            return self._all[number][1]
        made = self._make(nbytes)
        self._numbers[id(made)] = len(self._all)
        self._all.append((nbytes, made))
        return made

    def give_back(self, buffer: M) -> None:
        """Let a buffer of this pool be taken again; KeyError if it is not of this pool, ValueError if it is free."""
        number = self._numbers[id(buffer)]
        entry = (self._all[number][0], number)
        if entry in self._free:
            raise ValueError("a buffer was given back twice")
        bisect.insort(self._free, entry)
