"""Sequences of a batch are copied between caches: by the host where it has access, and on the device's queue."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.memory.growable_device_tensor import GrowableDeviceTensor
from opalite.cl.memory.staging_buffer import StagingBuffer
from opalite.cl.runtime import Runtime


@pytest.mark.parametrize("shape, batch, axis", [((3, 2, 0, 4), 0, 2), ((2, 3, 2, 0, 4), 1, 3), ((3, 0, 5), 0, 1)])
@pytest.mark.parametrize("is_host", [True, False])
def test_copies(
    rt: Runtime, shape: tuple[int, ...], batch: int, axis: int, is_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_host:
        monkeypatch.setattr(StagingBuffer, "shared", lambda self, dtype, shape: None)
    kind = np.dtype(np.float32)
    source, target = (GrowableDeviceTensor(rt, shape, kind, axis, capacity) for capacity in (11, 17))
    rng = np.random.default_rng(0)
    held, wanted = (rng.standard_normal(t.shape_at(n)).astype(kind) for t, n in ((source, 9), (target, 12)))
    source.write(held)
    target.write(wanted)

    def part(array: np.ndarray, entry: int, first: int, count: int) -> np.ndarray:
        moved = np.moveaxis(array, (batch, axis), (0, 1))
        found: np.ndarray = moved[entry, first : first + count]
        return found

    nbytes = target.copy_entry(source, batch, (2, 0), 1, 4, 6)
    rt.finish()
    part(wanted, 0, 4, 6)[:] = part(held, 2, 1, 6)
    assert nbytes == part(held, 2, 1, 6).nbytes
    np.testing.assert_array_equal(target.numpy(), wanted)
    for first, start in ((0, 3), (5, 2)):  # over itself, in both directions
        target.copy_entry(target, batch, (1, 1), first, start, 7)
        rt.finish()
        part(wanted, 1, start, 7)[:] = part(wanted, 1, first, 7).copy()
        np.testing.assert_array_equal(target.numpy(), wanted)
    empty = target.empty_like(2, batch, 5, 8)
    assert empty.shape[batch] == 2
    assert not empty.numpy().any()
    assert not empty.copy(20).tensor.numpy().any()
