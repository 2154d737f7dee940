"""Host operators on numbers: data-dependent shapes, determinants, inverses, long Fourier transforms; and hashes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import Array
from ..proto.graphdef import DOMAIN
from .numpy_ops import HostNode, host_step


@host_step("NonZero")
def nonzero(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Return the coordinates of nonzero elements, one column each."""
    array = np.atleast_1d(np.asarray(inputs[0]))  # ONNX treats a scalar as one element
    return [np.asarray(np.nonzero(array), np.int64)]


@host_step("Unique")
def unique(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Return distinct elements or slices, their first positions, the index of each input's value, and counts."""
    axis, is_sorted = node.attrs.get("axis"), int(node.attrs.get("sorted", 1)) == 1
    array = np.asarray(inputs[0])
    if axis is not None and not -array.ndim <= axis < array.ndim:
        raise ShapeError(f"Unique along axis {axis} of a tensor of shape {list(array.shape)}")
    return node.named(find_unique(array, axis, is_sorted))


@host_step("Compress")
def compress(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Select slices by a condition, which may be longer or shorter than the axis."""
    axis = node.attrs.get("axis")
    array, condition = np.asarray(inputs[0]), np.asarray(inputs[1]).reshape(-1)
    if axis is None:
        array = array.reshape(-1)
    elif not -array.ndim <= axis < array.ndim:
        raise ShapeError(f"Compress along axis {axis} of a tensor of shape {list(array.shape)}")
    along = axis or 0
    return [np.take(array, np.flatnonzero(condition[: array.shape[along]]), along)]


@host_step("Det")
def det(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Compute determinants of square matrices in double precision."""
    array = np.asarray(inputs[0])
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ShapeError(f"Det needs square matrices, got shape {list(array.shape)}")
    return [np.asarray(np.linalg.det(array.astype(np.float64))).astype(array.dtype)]


@host_step("Transform", DOMAIN)
def transform(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Transform x[..., n, 1 or 2] along n, cut or zero-padded to `length`: [..., k, 2], computed in double precision.

    With `inverse` and `onesided` the result is real: [..., length, 1].
    """
    length, inverse, onesided = (int(node.attrs[name]) for name in ("length", "inverse", "onesided"))
    x: Array = inputs[0]
    wide = x.astype(np.float64)
    numbers = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    if inverse and onesided:
        return [np.fft.irfft(numbers, length)[..., None].astype(x.dtype)]
    found = (np.fft.ifft if inverse else np.fft.fft)(numbers, length)
    if onesided:
        found = found[..., : length // 2 + 1]
    return [np.stack([found.real, found.imag], -1).astype(x.dtype)]


def find_unique(x: Array, axis: int | None, is_sorted: bool) -> list[Array]:
    """Return distinct slices of `x` along `axis`, their first positions, the index per slice of `x`, and counts.

    axis: None for the elements of the flattened tensor.
    """
    slices = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    count = slices.shape[0]
    if axis is None:
        _, first, inverse, counts = np.unique(slices, return_index=True, return_inverse=True, return_counts=True)
    else:
        rows = slices.reshape(count, math.prod(slices.shape[1:]))
        # Ranks also order strings by rows, which NumPy cannot.
        ranks = np.unique(rows, return_inverse=True)[1].reshape(rows.shape)
        if not rows.shape[1]:
            ranks = np.zeros((count, 1), np.int64)  # empty slices are all equal
        _, first, inverse, counts = np.unique(ranks, axis=0, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        first, counts, inverse = first[order], counts[order], place[inverse]
    found = slices[first]
    y = found if axis is None else np.moveaxis(found, 0, axis)
    return [np.ascontiguousarray(y), *(np.asarray(a, np.int64) for a in (first, inverse, counts))]


# Domain com.microsoft


MS = "com.microsoft"


@host_step("Unique", MS)
def unique_of_vector(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Return the distinct elements of a vector in order of first occurrence, the index of each element, and counts."""
    y, _, inverse, counts = find_unique(inputs[0].reshape(-1), None, is_sorted=False)
    return node.named([y, inverse, counts])


@host_step("BifurcationDetector", MS)
def bifurcation_detector(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Accept predicted tokens in speculative decoding, and find the continuation of their last n-gram in the source.

    Outputs: the tokens so far plus predicted ones up to the first that differs from the source; and the position after
    the last n-gram's only occurrence in the source, -1 if it occurs never or several times.
    """
    least, most = int(node.attrs.get("min_ngram_size", 1)), int(node.attrs.get("max_ngram_size", 3))
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


@host_step("DynamicTimeWarping", MS)
def dynamic_time_warping(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Find the cheapest path through a cost matrix from its first element to its last: int32 [2, steps].

    The rows of the result are row and column indices. Among equal paths the one that stays in its row is taken.
    """
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


@host_step("Inverse", DOMAIN)
def inverse(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Invert each matrix; singular ones give NaN."""
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


@host_step("MurmurHash3", MS)
def murmur_hash3(node: HostNode, inputs: Sequence[Any]) -> list[Any]:
    """Compute MurmurHash3_x86_32 of strings (UTF-8)."""
    seed = int(node.attrs.get("seed", 0)) & 0xFFFFFFFF
    kind = np.uint32 if int(node.attrs.get("positive", 1)) else np.int32
    texts: Array = inputs[0]
    hashes = [_hash(str(t).encode("utf-8", "surrogateescape"), seed) for t in texts.reshape(-1)]
    return [np.array(hashes, np.uint32).view(kind).reshape(texts.shape)]


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
