"""Arrays in memory that two processes share."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np

from opalite.run.api.process.shared_memory import SharedArrays


def test_what_is_put_is_what_the_other_gets() -> None:
    one = SharedArrays()
    other = SharedArrays(os.dup(one.descriptor))
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


def test_memory_grows_and_what_was_got_before_stays_readable() -> None:
    one = SharedArrays()
    other = SharedArrays(os.dup(one.descriptor))
    ((small, _),) = other.get(one.put([np.full(10, 7, np.uint8)]))
    ((large, _),) = other.get(one.put([np.arange(100_000)]))
    assert small.shape == (10,)
    np.testing.assert_array_equal(large, np.arange(100_000))
    ((again, _),) = other.get(one.put([np.full(5, 3, np.int8)]))
    assert again.tolist() == [3] * 5
