"""Seeded draws: sizes, shapes and arrays, awkward ones among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Array = np.ndarray[Any, Any]

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17)
LONG_SIZES = (*SIZES, 19, 23, 31, 32, 33, 37, 64, 67)
RANKS = {0: 1, 1: 2, 2: 4, 3: 5, 4: 6, 5: 1.5, 6: 1}


class Draw:
    """Draws of one graph. empty: how often a size is 0. special: how often an array holds values such as NaN."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 0x0FA1])
        self.empty = 0.0
        self.special = 0.0

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    def weighted(self, options: Mapping[T, float]) -> T:
        names = list(options)
        weights = np.fromiter(options.values(), float)
        return names[int(self.rng.choice(len(names), p=weights / weights.sum()))]

    def subset(self, options: Sequence[T], least: int = 0) -> list[T]:
        """Some of `options`, in order."""
        count = self.between(least, len(options))
        chosen = set(self.rng.permutation(len(options))[:count].tolist())
        return [o for i, o in enumerate(options) if i in chosen]

    def size(self, long: bool = False) -> int:
        return 0 if self.empty and self.chance(self.empty) else self.pick(LONG_SIZES if long else SIZES)

    def shape(self, rank: int | None = None, most: int = 4096) -> list[int]:
        """A shape of at most `most` elements."""
        rank = self.weighted(RANKS) if rank is None else rank
        for _ in range(20):
            found = [self.size(long=rank <= 3) for _ in range(rank)]
            if math.prod(found) <= most:
                return found
        return [self.between(1, 3) for _ in range(rank)]

    def array(self, shape: Sequence[int], dtype: Any, low: float | None = None, high: float | None = None) -> Array:
        """Contents for `shape`; within [low, high] where given."""
        dtype = np.dtype(dtype)
        if dtype.kind == "f":
            return self._floats(tuple(shape), dtype, low, high)
        if dtype.kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        low = (0 if dtype.kind == "u" else -9) if low is None else low
        high = 9 if high is None else high
        low, high = max(low, -(2**62)), min(high, 2**62)  # uint64 holds more than what is drawn from
        return np.asarray(self.rng.integers(int(low), int(high), shape, endpoint=True)).astype(dtype)

    def _floats(self, shape: tuple[int, ...], dtype: Any, low: float | None, high: float | None) -> Array:
        if low is not None:
            high = low + 1 if high is None else high
            return np.asarray(low + (high - low) * self.rng.random(shape)).astype(dtype)
        kind = self.between(0, 9)
        if kind < 7:
            found = self.rng.standard_normal(shape)
        elif kind == 7:
            found = self.rng.integers(-3, 4, shape).astype(float)
        elif kind == 8:
            found = 10 * self.rng.random(shape) - 5
        else:
            found = 1e-3 * self.rng.standard_normal(shape)
        array = np.asarray(found).astype(dtype)
        if self.special and array.size and self.chance(self.special):
            flat = array.reshape(-1)
            top = 1e3 if dtype.itemsize == 2 else 1e12  # whose square is no infinity: when sums overflow is undefined
            values = (np.nan, np.inf, -np.inf, -0.0, 1e-41, -1e-39, top, -top)
            for _ in range(self.between(1, 3)):
                with np.errstate(all="ignore"):
                    flat[self.between(0, flat.size - 1)] = np.float64(self.pick(values)).astype(dtype)
        return array
