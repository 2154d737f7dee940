"""Shared weights that lie elsewhere, without a device: they are read where nobody knows what they contain."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np

from opalite.cl.memory.shared_weights import SharedWeight, WeightStore
from opalite.ir.constants.lazy_array import LazyArray, content_key


class Memory:
    """What stands for a buffer."""


class Source:
    """An array that counts how often it is read."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.reads = array, 0

    def stored(self, key: Any = None) -> LazyArray:
        def load() -> np.ndarray[Any, Any]:
            self.reads += 1
            return self.array.copy()

        return LazyArray(self.array.dtype, self.array.shape, load, key=key)


def make_store(wraps: bool = False) -> tuple[WeightStore, list[np.ndarray[Any, Any]]]:
    uploaded: list[np.ndarray[Any, Any]] = []

    def upload(array: np.ndarray[Any, Any], image: bool) -> SharedWeight:
        uploaded.append(array.copy())
        return SharedWeight(Memory(), array if wraps else None)

    return WeightStore(upload), uploaded


def test_what_is_made_alike_is_read_once() -> None:
    store, uploaded = make_store()
    source = Source(np.arange(6))
    first = source.stored("one")
    held = store.get(first)
    assert (source.reads, len(uploaded)) == (1, 1)
    again = source.stored("one")
    assert store.has(again)
    assert store.find(again) is held
    assert store.get(again) is held
    assert (source.reads, store.hits) == (1, 1)
    other = source.stored("two")
    assert not store.has(other)  # nobody has looked yet
    assert store.get(other) is held
    assert (source.reads, len(uploaded)) == (2, 1)
    assert store.has(other)
    assert store.get(source.array) is held


def test_another_form_is_another_memory() -> None:
    store, uploaded = make_store()
    first, second = Source(np.arange(6)).stored("one"), Source(np.arange(1, 7)).stored("two")
    image = Source(np.arange(6)).stored("one")
    kept = [store.get(first), store.get(second), store.get(image, image=True)]
    assert len(set(map(id, kept))) == 3
    assert [a.tolist() for a in uploaded] == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5]]


def test_memory_goes_with_the_last_who_uses_it() -> None:
    store, uploaded = make_store()
    source = Source(np.arange(6))
    array = source.stored("one")
    first = store.get(array)
    second = store.get(source.stored("one"))
    assert len(store) == 1
    del first
    gc.collect()
    assert len(store) == 1
    del second
    gc.collect()
    assert len(store) == 0
    assert not store.has(array)
    assert array.contents.digest == content_key(source.array)  # known still, and of no use
    kept = store.get(array)
    assert (source.reads, len(uploaded)) == (2, 2)
    assert store.has(array)
    del kept


def test_what_is_known_goes_with_the_last_who_holds_it() -> None:
    store, _ = make_store()
    source = Source(np.arange(6))
    array = source.stored("one")
    held = store.get(array)
    del array
    gc.collect()
    assert not store.has(source.stored("one"))
    assert store.get(source.stored("one")) is held  # found by its bytes
    assert source.reads == 2


def test_what_a_device_works_on_is_known_by_its_array() -> None:
    store, uploaded = make_store(wraps=True)
    array = np.arange(6)
    held = store.get(array)
    stored = LazyArray(array.dtype, array.shape, lambda: array)
    assert store.get(stored) is held
    assert stored.contents.digest == content_key(array)
    assert len(uploaded) == 1
    named = store.get(np.arange(7), key="some name")
    assert named.digest == "", "a name is no digest"


def test_threads_that_want_the_same_share_it() -> None:
    store, uploaded = make_store()
    source = Source(np.arange(1 << 16))
    found: list[SharedWeight] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        array = source.stored("one")
        barrier.wait()
        found.append(store.get(array))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert len(uploaded) == 1
