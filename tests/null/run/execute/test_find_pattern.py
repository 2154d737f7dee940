"""Linked kernels are reused for other memory if slots have equal offsets; the length of a cache does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from opalite.plan.program import Slot, Storage
from opalite.run.execute.strategies.linked_ptx_kernels import BufferRange, find_pattern

ARENA, CACHE, OTHER = object(), object(), object()
SLOTS = [
    Slot(0, 64, Storage.DYNAMIC),
    Slot(1, 64, Storage.DYNAMIC),
    Slot(2, 256, Storage.RESERVED),
    Slot(3, 32, Storage.STATIC),
]
PLACES = {
    0: BufferRange(ARENA, 0, 64),
    1: BufferRange(ARENA, 64, 128),
    2: BufferRange(CACHE, 0, 256),
    3: BufferRange(OTHER, 0, 32),
}
PROGRAM: Any = SimpleNamespace(slots=SLOTS)


def pattern(
    changes: Mapping[int, BufferRange] | None = None, grid: tuple[int, ...] = (128,), moving: Any = ()
) -> object:
    launches: Any = {4: SimpleNamespace(grid=grid, group=(64,))}
    return find_pattern(PROGRAM, launches, PLACES | (changes or {}), moving)


def test_a_cache_may_lie_elsewhere_and_be_larger() -> None:
    assert pattern({2: BufferRange(object(), 0, 4096)}) == pattern()
    assert hash(pattern()) == hash(pattern())


def test_all_else_tells_them_apart() -> None:
    others = [
        pattern({2: BufferRange(CACHE, 64, 256)}),  # begins elsewhere
        pattern({2: BufferRange(ARENA, 0, 256)}),  # in memory that others use
        pattern({1: BufferRange(ARENA, 32, 96)}),  # meets another
        pattern({1: BufferRange(object(), 64, 128)}),  # does not share any more
        pattern({3: BufferRange(OTHER, 0, 1 << 20)}),  # constants as long as those pass by the cache
        pattern(grid=(256,)),
    ]
    assert pattern() not in others
    assert len(set(others)) == len(others)


def test_a_cache_within_shared_memory_is_as_long_as_it_is() -> None:
    assert pattern({2: BufferRange(ARENA, 128, 256)}) != pattern({2: BufferRange(ARENA, 128, 512)})


def test_grids_that_move_are_read_from_a_table() -> None:
    assert pattern(grid=(256,), moving={4}) == pattern(grid=(128,), moving={4})
