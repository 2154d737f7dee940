"""GroupQueryAttention with sliding-window caches, step by step against onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError, UnsupportedOpError

from ..oracles import MS, Values, assert_same, by_ort, imported

V = Values(2)
SPLITS = ((1,) * 12, (5, 1, 1, 1, 1, 1), (3, 4, 1, 2, 6, 1), (11, 1, 1))
WIDTH = 16


def i32(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def resident(count: int, capacity: int, window: int) -> int:
    """Return the number of rows held after `count` tokens, by the operator's description."""
    step = capacity - window + 1
    return count if count <= capacity else count - step * -(-(count - capacity) // step)


@pytest.mark.parametrize("steps", SPLITS, ids=str)
@pytest.mark.parametrize("capacity", [4, 6, 9])
@pytest.mark.parametrize("rotary, cut", [(0, 0.0), (1, 30.0)])
def test_steps(capacity: int, steps: tuple[int, ...], rotary: int, cut: float) -> None:
    """Results and valid rows are equal for any split into runs; with a window of 4, rows leave singly or in groups."""
    attrs: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 4, "sliding_window_cache": 1}
    attrs |= {"do_rotary": rotary, "softcap": cut, "domain": MS, "const": (6,)}
    angles = V.f(sum(steps), WIDTH // 2)
    more = [np.cos(angles), np.sin(angles)] if rotary else []
    caches = [[np.zeros((1, 2, capacity, WIDTH), np.float32)] * 2] * 2
    for end, count in zip(itertools.accumulate(steps), steps, strict=True):
        new = [V.f(1, count, 4 * WIDTH), V.f(1, count, 2 * WIDTH), V.f(1, count, 2 * WIDTH)]
        told = [i32(end - 1), np.asarray(end, np.int32), *more]
        runs = zip((imported, by_ort), caches, strict=True)
        found = [run("GroupQueryAttention", [*new, *held, *told], (0, 1, 2), **attrs) for run, held in runs]
        rows = resident(end, capacity, 4)
        cut_off = [[y, *(c[:, :, :rows] for c in presents)] for y, *presents in found]
        assert_same(*cut_off)
        assert all(c.shape[2] == capacity for c in found[0][1:])
        caches = [presents for _, *presents in found]


def test_rows_of_a_batch_have_their_own_windows() -> None:
    attrs = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 4, "sliding_window_cache": 1, "const": (6,)}
    new = [V.f(3, 1, 4 * WIDTH), V.f(3, 1, 2 * WIDTH), V.f(3, 1, 2 * WIDTH), V.f(3, 2, 6, WIDTH), V.f(3, 2, 6, WIDTH)]
    ends = (3, 7, 12)
    arrays = [*new, i32(*(n - 1 for n in ends)), np.asarray(12, np.int32)]
    found = [run("GroupQueryAttention", arrays, (0, 1, 2), domain=MS, **attrs) for run in (imported, by_ort)]
    assert_same(*(f[:1] for f in found))
    for row, end in enumerate(ends):
        assert_same(*([c[row, :, : resident(end, 6, 4)] for c in f[1:]] for f in found))


def test_a_cache_that_is_shorter_than_the_window_grows() -> None:
    """It behaves as a full cache: onnxruntime needs its full length from the first run on."""
    attrs: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 9, "const": (6,), "domain": MS}
    arrays = [
        V.f(1, 1, 4 * WIDTH),
        V.f(1, 1, 2 * WIDTH),
        V.f(1, 1, 2 * WIDTH),
        V.f(1, 2, 5, WIDTH),
        V.f(1, 2, 5, WIDTH),
        i32(5),
    ]
    arrays.append(np.asarray(6, np.int32))
    got = imported("GroupQueryAttention", arrays, (0, 1, 2), sliding_window_cache=1, **attrs)
    assert_same(got, by_ort("GroupQueryAttention", arrays, (0, 1, 2), **attrs))


def test_what_is_missing_is_told() -> None:
    arrays = [*[V.f(1, 1, 64)] * 3, V.f(1, 4, 6, 16), V.f(1, 4, 6, 16), i32(7), np.asarray(8, np.int32)]
    attrs = {"num_heads": 4, "kv_num_heads": 4, "sliding_window_cache": 1, "const": (6,)}
    with pytest.raises(ShapeError, match="local_window_size is -1"):
        imported("GroupQueryAttention", arrays, domain=MS, **attrs)
    given = [*arrays, None, None, None, V.f(1, 1, 1, 8)]
    with pytest.raises(UnsupportedOpError, match="attention_bias with sliding_window_cache"):
        imported("GroupQueryAttention", given, domain=MS, local_window_size=4, **attrs)
