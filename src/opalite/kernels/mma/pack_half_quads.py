"""Matrices as quads of halves: NumPy then moves 8-byte words, four times as fast as single halves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..launch import Array, ceil_div

QUAD = 4  # halves


def to_half_quads(matrix: Array, by_rows: bool) -> Array:
    """Floats [n, k] (`by_rows`) or [k, n] as halves [n, ceil(k / 4), 4], zero-padded past k."""
    if by_rows:
        n, k = matrix.shape
        if k % QUAD == 0:
            return matrix.astype(np.float16).reshape(n, -1, QUAD)
        out = np.zeros((n, ceil_div(k, QUAD) * QUAD), np.float16)
        out[:, :k] = matrix
        return out.reshape(n, -1, QUAD)
    k, n = matrix.shape
    quads = np.zeros((ceil_div(k, QUAD), n, QUAD), np.float16)
    for i in range(QUAD):
        part = matrix[i::QUAD]
        quads[: len(part), :, i] = part
    return quads.swapaxes(0, 1)


def quads_to_words(quads: Array, channels: int, count: int, word: Any) -> Array:
    """Float quads [.., .., 4] as half words [channels, count, 8 / word bytes], zero-padded."""
    if quads.shape[:2] != (channels, count) or quads.dtype != np.float16 or quads.strides[-1] != 2:
        whole = np.zeros((channels, count, QUAD), np.float16)
        whole[: quads.shape[0], : quads.shape[1]] = quads
        quads = whole
    return quads.view(word)
