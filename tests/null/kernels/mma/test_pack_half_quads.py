"""Quads of halves, and the packed forms that take them by pairs."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.kernels.mma.mma_tile import pack_weights, quads_to_words, to_half_quads
from opalite.kernels.mma.staged_tile import SLAB, pack_stages
from opalite.kernels.mma.wgmma_tile import CHUNK, pack_chunks


def halves(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-99, 99, shape).astype(np.float16)


@pytest.mark.parametrize(("n", "k"), [(16, 32), (7, 13), (1, 3), (5, 4), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_quads_lie_side_by_side(n: int, k: int, dtype: type) -> None:
    rows = halves(n, k).astype(dtype)
    want = np.zeros((n, -(-k // 4) * 4), np.float16)
    want[:, :k] = rows
    for matrix, by_rows in ((rows, True), (np.ascontiguousarray(rows.T), False)):
        found = to_half_quads(matrix, by_rows)
        assert found.shape == (n, -(-k // 4), 4)
        np.testing.assert_array_equal(found.reshape(n, -1), want)
        words = quads_to_words(found, n + 2, found.shape[1] + 3, np.uint64)
        assert words.shape == (n + 2, found.shape[1] + 3, 1)
        np.testing.assert_array_equal(words.view(np.float16)[:n, : found.shape[1]], found)
        assert not words[n:].any()
        assert not words[:, found.shape[1] :].any()


def swapped(quads: np.ndarray, count: int) -> np.ndarray:
    """Of each `count` quads even ones first, then odd ones; zeros up to whole ones."""
    channels = quads.shape[0]
    whole = np.zeros((channels, -(-quads.shape[1] // count) * count, 4), np.float16)
    whole[:, : quads.shape[1]] = quads
    return whole.reshape(channels, -1, count // 2, 2, 4).swapaxes(2, 3).reshape(channels, -1, 4)


@pytest.mark.parametrize(("channels", "count"), [(32, 16), (20, 9), (48, 24), (1, 1)])
def test_pairs_of_quads(channels: int, count: int) -> None:
    quads = to_half_quads(halves(4 * count, channels), False)  # strided, as a matrix [K, N] gives them
    for slabs in (1, 2, 4):
        want = pack_stages(swapped(quads, SLAB), slabs)
        np.testing.assert_array_equal(pack_stages(quads, slabs, paired=True), want)
    np.testing.assert_array_equal(pack_chunks(quads, 64, paired=True), pack_chunks(swapped(quads, CHUNK), 64))
    np.testing.assert_array_equal(pack_weights(quads), pack_weights(np.ascontiguousarray(quads, np.float32)))
