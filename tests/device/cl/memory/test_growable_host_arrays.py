"""Arrays of growable tensors: views of shared memory, mirrors elsewhere, and who still looks at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.memory import growable_host_arrays
from opalite.cl.memory.growable_device_tensor import GrowableDeviceTensor
from opalite.cl.memory.growable_host_arrays import GrowableHostArrays, MirrorUpdates
from opalite.cl.runtime import Runtime

F4, F2 = np.dtype(np.float32), np.dtype(np.float16)


@pytest.fixture(params=["own", "other"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device's own kind of memory, or one that the host cannot reach."""
    if request.param == "other":
        monkeypatch.setattr(Runtime, "shares_memory", property(lambda rt: False))
    return str(request.param)


def tensor(rt: Runtime, contents: Any, capacity: int = 8, stored: Any = None) -> GrowableDeviceTensor:
    made = GrowableDeviceTensor(rt, contents.shape, contents.dtype, 2, capacity, stored=stored)
    made.write(contents)
    return made


def numbers(length: int) -> Any:
    return np.arange(2 * 3 * length * 4, dtype=np.float32).reshape(2, 3, length, 4)


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("stored", [F4, F2])
def test_positions_arrive(rt: Runtime, memory: str, monkeypatch: pytest.MonkeyPatch, stored: Any, most: int) -> None:
    monkeypatch.setattr(growable_host_arrays, "_MOST_GATHERED", most)
    updates, source, other = MirrorUpdates(), tensor(rt, numbers(3), stored=stored), tensor(rt, numbers(2) + 1)
    shown = [GrowableHostArrays(source), GrowableHostArrays(other)]
    for length in (3, 5, 8):
        source.write(numbers(length))
        shown[0].cut(length - 1)  # what a run appends is one position
        source.length = length
        updates.update(shown)
        np.testing.assert_array_equal(shown[0].array()[:, :, length - 1], numbers(length)[:, :, -1])
        np.testing.assert_array_equal(shown[1].array(), numbers(2) + 1)
    assert shown[0].is_mirror is (memory == "other" or stored is F2 or not rt.shares_memory)


def test_who_looks(rt: Runtime, memory: str) -> None:
    source = tensor(rt, numbers(3))
    shown = GrowableHostArrays(source)
    MirrorUpdates().update([shown])
    assert shown.seen == 0
    array = shown.array()
    part = array[:, :, :2]
    assert shown.seen == 2
    assert shown.has(array)
    assert shown.has(part)
    assert not shown.has(array[:, :, 1:])
    assert not shown.has(array.copy())
    assert not shown.has(array[:1])
    del array, part
    assert shown.seen == 0


def test_other_memory_has_other_arrays(rt: Runtime, memory: str) -> None:
    source = tensor(rt, numbers(3))
    shown = GrowableHostArrays(source)
    assert shown.shows(source)
    assert not shown.shows(source.copy())
    source.convert(F2)
    assert not shown.shows(source)


def test_copies_into_larger_memory(rt: Runtime, memory: str) -> None:
    source = tensor(rt, numbers(3))
    larger = source.copy(16)
    np.testing.assert_array_equal(larger.numpy(), numbers(3))
    source.write(numbers(5))
    larger.length = 0
    larger.append_from(source)
    np.testing.assert_array_equal(larger.numpy(), numbers(5))
