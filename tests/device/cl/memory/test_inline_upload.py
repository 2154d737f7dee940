"""Small pieces of memory brought to a device as the argument of a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.memory.inline_upload import PIECES, InlineUpload
from opalite.cl.runtime import Runtime


def read(rt: Runtime, buffer: Any, nbytes: int) -> Any:
    found = np.empty(nbytes, np.uint8)
    rt.read(buffer, found)
    return found


def noise(nbytes: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.fixture
def uploads(rt: Runtime) -> InlineUpload:
    return InlineUpload(rt)


@pytest.mark.parametrize("nbytes", [0, 1, 2, 3, 4, 7, 8, 63, 400, 1001, 5000])
def test_every_number_of_bytes(rt: Runtime, uploads: InlineUpload, nbytes: int) -> None:
    data, buffer = noise(nbytes), rt.allocate(nbytes + 16)
    rt.fill(buffer, 0x5A, nbytes + 16)
    uploads.add_host(buffer, data, 8)
    uploads.flush()
    wanted = np.full(nbytes + 16, 0x5A, np.uint8)
    wanted[8 : 8 + nbytes] = data
    np.testing.assert_array_equal(read(rt, buffer, nbytes + 16), wanted)


def test_more_pieces_than_a_launch_takes(rt: Runtime, uploads: InlineUpload) -> None:
    buffers = [rt.allocate(64) for _ in range(2 * PIECES + 3)]
    enqueued = rt.counters.enqueues
    for i, buffer in enumerate(buffers):
        uploads.add_host(buffer, noise(60, i).view(np.int32))
    uploads.flush()
    assert rt.counters.enqueues - enqueued >= 3
    for i, buffer in enumerate(buffers):
        np.testing.assert_array_equal(read(rt, buffer, 60), noise(60, i))


@pytest.mark.parametrize("nbytes", [0, 1, 6, 4096, 100_003])
def test_from_memory_to_memory(rt: Runtime, uploads: InlineUpload, nbytes: int) -> None:
    source, target = rt.allocate(nbytes + 8), rt.allocate(nbytes + 8)
    rt.write(source, noise(nbytes + 8))
    rt.fill(target, 0, nbytes + 8)
    uploads.add_device(source, target, nbytes, 4)
    uploads.flush()
    found = read(rt, target, nbytes + 8)
    np.testing.assert_array_equal(found[4 : 4 + nbytes], noise(nbytes + 8)[:nbytes])
    assert not found[:4].any()
    assert not found[4 + nbytes :].any()


def test_the_argument_is_that_of_its_own_launch(rt: Runtime, uploads: InlineUpload) -> None:
    """What is collected next changes nothing that is on its way."""
    buffers = [rt.allocate(256) for _ in range(40)]
    for i, buffer in enumerate(buffers):
        uploads.add_host(buffer, noise(256, i))
        uploads.flush()
    for i, buffer in enumerate(buffers):
        np.testing.assert_array_equal(read(rt, buffer, 256), noise(256, i))


def test_much_is_rather_written(uploads: InlineUpload) -> None:
    assert uploads.accepts(256)
    assert not uploads.accepts(1 << 20)
