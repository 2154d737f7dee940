"""Pinned arrays: memory comes again once nothing refers to it, never while something does."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from opalite.cl.memory import pinned_arrays
from opalite.cl.memory.pinned_arrays import LEAST_BYTES, PinnedArrays

F32 = np.dtype(np.float32)


class Memory:
    """Counts allocations."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, nbytes: int) -> Any:
        self.sizes.append(nbytes)
        return np.zeros(nbytes, np.uint8)


def address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def test_memory_comes_again_after_the_last_view() -> None:
    memory = Memory()
    arrays = PinnedArrays(memory)
    first = arrays.empty((256, 256), F32)
    assert (first.shape, first.dtype, first.flags.writeable) == ((256, 256), F32, True)
    first[...] = 7
    at, view = address(first), first[5:, 3]
    del first
    gc.collect()
    other = arrays.empty((256, 256), F32)
    assert address(other) != at, "a view is alive"
    other[...] = 1
    assert (view == 7).all()
    del view
    gc.collect()
    again = arrays.empty((64, 1024), F32)
    assert address(again) == at
    assert len(memory.sizes) == 2


def test_similar_sizes_share_memory() -> None:
    memory = Memory()
    arrays = PinnedArrays(memory)
    for count in range(100_000, 101_000, 100):
        arrays.empty((count,), F32)
    assert len(memory.sizes) <= 2
    assert all(size >= 4 * 100_000 for size in memory.sizes)


def test_small_arrays_are_ordinary() -> None:
    memory = Memory()
    small = PinnedArrays(memory).empty((LEAST_BYTES // 4 - 1,), F32)
    assert small.base is None
    assert not memory.sizes


def test_a_limit_to_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_arrays, "MOST_BYTES", 3 * LEAST_BYTES)
    memory = Memory()
    arrays = PinnedArrays(memory)
    held = [arrays.empty((LEAST_BYTES,), np.dtype(np.uint8)) for _ in range(5)]
    assert [a.base is None for a in held] == [False, False, False, True, True]
    del held
    gc.collect()
    larger = arrays.empty((2 * LEAST_BYTES,), np.dtype(np.uint8))
    assert larger.base is not None, "unused memory of other sizes makes room"
    assert memory.sizes == [LEAST_BYTES] * 3 + [2 * LEAST_BYTES]


def test_memory_that_cannot_be_had_is_not_counted() -> None:
    def refuse(nbytes: int) -> Any:
        raise MemoryError

    arrays = PinnedArrays(refuse)
    for _ in range(2):
        with pytest.raises(MemoryError):
            arrays.empty((pinned_arrays.MOST_BYTES // 4,), F32)
