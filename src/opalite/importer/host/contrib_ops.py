"""Operators of domain com.microsoft on the host: with data-dependent output sizes or string inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..proto.decode import Array
from ..proto.graphdef import DOMAIN
from .numpy_ops import HostNode, Step, host_op
from .unique import find_unique

MS = "com.microsoft"


@host_op("Unique", MS)
def unique(node: HostNode) -> Step:
    """Return the distinct elements of a vector in order of first occurrence, the index of each element, and counts."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        y, _, inverse, counts = find_unique(inputs[0].reshape(-1), None, is_sorted=False)
        return node.named([y, inverse, counts])

    return run


@host_op("BifurcationDetector", MS)
def bifurcation_detector(node: HostNode) -> Step:
    """Accept predicted tokens in speculative decoding, and find the continuation of their last n-gram in the source.

    Outputs: the tokens so far plus predicted ones up to the first that differs from the source; and the position after
    the last n-gram's only occurrence in the source, -1 if it occurs never or several times.
    """
    least, most = int(node.attrs.get("min_ngram_size", 1)), int(node.attrs.get("max_ngram_size", 3))

    def run(inputs: Sequence[Any]) -> list[Any]:
        source, tokens, previous, *rest = inputs
        predicted = rest[0] if rest else None
        if predicted is not None:
            start = int(previous.reshape(-1)[0])
            expected = source[start:]
            if start < 0 or start > source.size or predicted.size != expected.size + 1:
                raise ShapeError(
                    f"{predicted.size} tokens are predicted for the source from {start} of {source.size} on; expected "
                    f"{expected.size + 1}"
                )
            wrong = np.flatnonzero(predicted[:-1] != expected)
            agreed = int(wrong[0]) if wrong.size else expected.size
            tokens = np.concatenate([tokens, predicted[: agreed + 1]])
        found = np.full(previous.shape, _suffix_place(source, tokens, least, most), np.int64)
        return node.named([tokens.copy(), found])

    return run


def _suffix_place(source: Array, tokens: Array, least: int, most: int) -> int:
    """Return the position in `source` after the longest suffix of `tokens` found there; -1 if it occurs twice."""
    place = -1
    for n in range(least, min(most, tokens.size) + 1):
        windows = np.lib.stride_tricks.sliding_window_view(source, n) if source.size >= n else np.zeros((0, n))
        at = np.flatnonzero((windows == tokens[tokens.size - n :]).all(axis=1))
        if not at.size:
            break
        place = int(at[0]) + n
        if place >= source.size:
            break
        if at.size > 1:
            place = -1
    return place


@host_op("DynamicTimeWarping", MS)
def dynamic_time_warping(node: HostNode) -> Step:
    """Find the cheapest path through a cost matrix from its first element to its last: int32 [2, steps].

    The rows of the result are row and column indices. Among equal paths the one that stays in its row is taken.
    """

    def run(inputs: Sequence[Any]) -> list[Any]:
        cost: Array = inputs[0]
        if cost.ndim == 3 and cost.shape[0] == 1:
            cost = cost[0]
        if cost.ndim != 2:
            raise ShapeError(f"costs are a matrix, or one in a batch of 1, got shape {list(cost.shape)}")
        came_from = _cheapest(cost.astype(np.float32))
        i, j = cost.shape
        path = []
        while i > 0 or j > 0:
            path.append((i - 1, j - 1))
            step = 2 if i == 0 else 1 if j == 0 else int(came_from[i, j])
            i, j = i - (step != 2), j - (step != 1)
        return [np.array(path[::-1], np.int32).reshape(-1, 2).T.copy()]

    return run


def _cheapest(cost: Array) -> Array:
    """Return each element's predecessor (with a border row and column): 0 diagonal, 1 row before, 2 column before.

    Elements of one anti-diagonal are independent and computed together.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    came_from = np.full(total.shape, -1, np.int8)
    for d in range(2, rows + columns + 1):
        i = np.arange(max(1, d - columns), min(rows, d - 1) + 1)
        j = d - i
        both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        way = np.where((both < row) & (both < column), 0, np.where((row < both) & (row < column), 1, 2))
        came_from[i, j] = way
        total[i, j] = cost[i - 1, j - 1] + np.choose(way, [both, row, column])
    return came_from


@host_op("Inverse", DOMAIN)
def inverse(node: HostNode) -> Step:
    """Invert each matrix; singular ones give NaN."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        x: Array = inputs[0]
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        try:
            return [np.linalg.inv(wide).astype(x.dtype)]
        except np.linalg.LinAlgError:
            found = np.full(wide.shape, np.nan, wide.dtype)
            for at in np.ndindex(wide.shape[:-2]):
                if np.linalg.matrix_rank(wide[at]) == wide.shape[-1]:
                    found[at] = np.linalg.inv(wide[at])
            return [found.astype(x.dtype)]

    return run


@host_op("MurmurHash3", MS)
def murmur_hash3(node: HostNode) -> Step:
    """Compute MurmurHash3_x86_32 of strings (UTF-8)."""
    seed = int(node.attrs.get("seed", 0)) & 0xFFFFFFFF
    kind = np.uint32 if int(node.attrs.get("positive", 1)) else np.int32

    def run(inputs: Sequence[Any]) -> list[Any]:
        texts: Array = inputs[0]
        hashes = [_hash(str(t).encode("utf-8", "surrogateescape"), seed) for t in texts.reshape(-1)]
        return [np.array(hashes, np.uint32).view(kind).reshape(texts.shape)]

    return run


_WORD = 0xFFFFFFFF


def _hash(key: bytes, seed: int) -> int:
    h, whole = seed, len(key) // 4 * 4
    for k in np.frombuffer(key[:whole], "<u4").tolist():
        h ^= _mixed(k)
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & _WORD
    if whole < len(key):
        h ^= _mixed(int.from_bytes(key[whole:], "little"))
    h ^= len(key)
    h = (h ^ h >> 16) * 0x85EBCA6B & _WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & _WORD
    return h ^ h >> 16


def _mixed(k: int) -> int:
    k = k * 0xCC9E2D51 & _WORD
    return (k << 15 | k >> 17) * 0x1B873593 & _WORD
