"""Pools, arena spans and shared weights without a device: their objects are stand-ins."""

from __future__ import annotations

import gc
import itertools
import random
from typing import Any

import numpy as np
import pytest

from opalite.cl.memory.allocator import split_regions
from opalite.cl.memory.buffer_pool import BufferPool
from opalite.cl.memory.shared_weights import SharedWeight, WeightStore
from opalite.cl.programs.build_parallelism import parallel_map
from opalite.ir.constants.lazy_array import PIECE, content_key


class Memory:
    def __init__(self, *size: Any) -> None:
        self.size = size


def test_buffer_pool_gives_the_smallest_that_fits() -> None:
    pool = BufferPool(Memory)
    small, middle, large = (pool.acquire(n) for n in (100, 200, 300))
    for buffer in (large, small, middle):
        pool.release(buffer)
    assert pool.acquire(150) is middle
    assert pool.acquire(150) is large
    assert pool.acquire(100) is small
    assert pool.acquire(50) not in (small, middle, large)
    assert pool.total_bytes == 650


def test_a_separate_buffer_is_always_new() -> None:
    pool = BufferPool(Memory)
    first = pool.acquire(100)
    pool.release(first)
    assert pool.acquire(100, separate=True) is not first


def test_giving_back_twice_or_elsewhere_is_an_error() -> None:
    pool = BufferPool(Memory)
    buffer = pool.acquire(8)
    pool.release(buffer)
    with pytest.raises(ValueError, match="twice"):
        pool.release(buffer)
    with pytest.raises(KeyError):
        pool.release(Memory(8))


def test_arena_is_one_span_within_the_limit() -> None:
    assert split_regions([(0, 1000), (1024, 500), (512, 700)], 4096) == [(0, 1524)]
    assert split_regions([], 4096) == []


def test_arena_is_divided_where_no_region_crosses() -> None:
    assert split_regions([(0, 1000), (1024, 1000), (2048, 1000)], 2048) == [(0, 2024), (2048, 3048)]
    # The third bridges the first two, so they must stay together.
    assert split_regions([(0, 1000), (1024, 1000), (512, 1024)], 1100) == [(0, 2024)]


def test_arena_spans_cover_every_region_whatever_they_are() -> None:
    rng = random.Random(7)
    for _ in range(200):
        regions = [(rng.randrange(64) * 128, rng.randrange(1, 1500)) for _ in range(rng.randrange(1, 12))]
        spans = split_regions(regions, 2048)
        for offset, nbytes in regions:
            assert sum(start <= offset and offset + nbytes <= end for start, end in spans) == 1
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def make_store() -> tuple[WeightStore, list[np.ndarray[Any, Any]]]:
    uploaded: list[np.ndarray[Any, Any]] = []

    def upload(array: np.ndarray[Any, Any], image: bool) -> SharedWeight:
        uploaded.append(array)
        return SharedWeight(Memory(array.nbytes, image), None)

    return WeightStore(upload), uploaded


def test_equal_weights_are_uploaded_once_while_held() -> None:
    store, uploaded = make_store()
    a = np.arange(6, dtype=np.float32)
    first, second = store.get(a), store.get(a.copy())
    assert first is second
    assert store.hits == 1
    assert store.get(a, image=True) is not first
    del first, second
    gc.collect()
    assert len(store) == 0
    store.get(a)
    assert len(uploaded) == 3


def test_a_key_spares_hashing_and_tells_contents_apart() -> None:
    store, _ = make_store()
    a = np.zeros(4, np.float32)
    first = store.get(a, key="model:0")
    assert store.get(np.ones(4, np.float32), key="model:0") is first
    assert store.get(a, key="model:1") is not first


def test_what_the_device_works_on_is_known_without_its_contents() -> None:
    store = WeightStore(lambda array, image: SharedWeight(Memory(array.nbytes, image), array))
    a = np.zeros(4, np.float32)
    first = store.get(a)
    a[0] = 1  # nobody does that: it shows that nothing was digested
    assert store.get(a) is first
    assert store.get(a, image=True) is not first
    assert store.get(a.copy()) is not first


def test_content_keys_tell_types_shapes_and_layouts_apart() -> None:
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    keys = {
        content_key(x)
        for x in (a, a.reshape(3, 2), a.astype(np.uint32), a.view(np.float32), np.zeros((0,), np.float32), a + 1)
    }
    assert len(keys) == 6
    assert content_key(np.asfortranarray(a)) == content_key(a)
    large = np.zeros(PIECE // 4 + 3, np.float32)
    changed = [large.copy() for _ in range(2)]
    changed[0][0] = changed[1][-1] = 1
    assert len({content_key(x) for x in (large, *changed)}) == 3
    assert content_key(large, parallel_map) == content_key(large)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert content_key(np.zeros(2, ml_dtypes.bfloat16)) != content_key(np.zeros(2, np.float16))
