"""Pools of memory objects that are handed out and taken back: best fit, as MNN's BufferPool and ImagePool (seed 002).

Needs no OpenCL: a pool is given the function that makes an object.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..ir.dtype import DType

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


class ImagePool(Generic[M]):
    """Images by width, height and channel type: `take` gives the free one that wastes the fewest texels."""

    def __init__(self, make: Callable[[int, int, DType], M]) -> None:
        self._make = make
        self._free: set[int] = set()
        self._all: list[tuple[int, int, DType, M]] = []
        self._numbers: dict[int, int] = {}

    @property
    def total_bytes(self) -> int:
        """Bytes of every image made."""
        return sum(w * h * 4 * dtype.size for w, h, dtype, _ in self._all)

    def take(self, width: int, height: int, dtype: DType, separate: bool = False) -> M:
        """An image of at least `width` × `height` texels of `dtype`."""

        def waste(number: int) -> int:
            w, h, _, _ = self._all[number]
            return w * h - width * height

        def fits(number: int) -> bool:
            w, h, kind, _ = self._all[number]
            return w >= width and h >= height and kind is dtype

        fitting = [] if separate else [n for n in sorted(self._free) if fits(n)]
        if fitting:
            number = min(fitting, key=waste)
            self._free.remove(number)
            return self._all[number][3]
        made = self._make(width, height, dtype)
        self._numbers[id(made)] = len(self._all)
        self._all.append((width, height, dtype, made))
        return made

    def give_back(self, image: Any) -> None:
        """Let an image of this pool be taken again; KeyError if it is not of this pool, ValueError if it is free."""
        number = self._numbers[id(image)]
        if number in self._free:
            raise ValueError("an image was given back twice")
        self._free.add(number)
