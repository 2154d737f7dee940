"""Arrays that two processes share in a file."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np

from opalite.run.queue.process_worker import Cores, core_settings
from opalite.run.queue.session_workers import share_cores
from opalite.run.queue.shared_memory_arrays import Box


def test_what_is_put_is_what_the_other_gets() -> None:
    one = Box()
    other = Box(os.dup(one.descriptor))
    values = [
        np.arange(24, dtype=np.int64).reshape(2, 3, 4)[:, ::2],
        np.array(3.5, np.float32),
        np.zeros((0, 4), np.float32),
        np.array(["text", b"bytes"], object),
        np.ones(3, ml_dtypes.bfloat16),
        [1, 2],
        "word",
    ]
    for _ in range(2):
        found = other.get(one.put(values))
        for want, (got, _) in zip(values, found, strict=True):
            assert type(got) is type(want)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
            assert getattr(got, "dtype", None) == getattr(want, "dtype", None)
    assert [is_shared for _, is_shared in found] == [True, True, False, False, True, False, False]


def test_a_box_grows_and_what_was_got_before_stays_readable() -> None:
    one = Box()
    other = Box(os.dup(one.descriptor))
    ((small, _),) = other.get(one.put([np.full(10, 7, np.uint8)]))
    ((large, _),) = other.get(one.put([np.arange(100_000)]))
    assert small.shape == (10,)
    np.testing.assert_array_equal(large, np.arange(100_000))
    ((again, _),) = other.get(one.put([np.full(5, 3, np.int8)]))
    assert again.tolist() == [3] * 5


def test_cores_are_shared_out_evenly(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    workers = "opalite.run.queue.session_workers"
    monkeypatch.setattr(f"{workers}.allowed_cores", lambda: [0, 2, 4, 5, 6])
    monkeypatch.setattr(f"{workers}.core_limit", lambda: 5)
    assert share_cores(2) == [Cores((0, 2, 4), 3), Cores((5, 6), 2)]
    assert share_cores(7) == [Cores((c,), 1) for c in (0, 2, 4, 5, 6, 0, 2)]
    assert core_settings(Cores((0, 2), 2)).get("POCL_AFFINITY", "") == ""
    monkeypatch.setattr(f"{workers}.core_limit", lambda: 3)  # a container's time
    assert share_cores(2) == [Cores((), 1)] * 2
    assert core_settings(Cores((), 1)) == {"POCL_AFFINITY": "0", "POCL_MAX_PTHREAD_COUNT": "1"}
