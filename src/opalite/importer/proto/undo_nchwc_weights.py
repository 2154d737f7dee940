"""Convolution filters in onnxruntime's NCHWc layouts: reordering to [M,C,H,W] and detection of the block size.

The layouts store channels in blocks of B = 8 (CPUs with AVX2) or 16 (AVX-512, AArch64), under the dimensions of the
plain filter with M rounded up to B. OIHWBo is [M/B,C,H,W,B]; OIHWBiBo is [M/B,C/B,H,W,B,B] with C rounded up too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.constants.lazy_array import LazyArray

Array = np.ndarray[Any, Any]

BLOCKS = (16, 8)
"""Block sizes of onnxruntime, the more common one first."""

_MOST_ELEMENTS = 1 << 20  # total size of filters compared to detect the block size
_LEAST_ENERGY = 1e-12  # energy of a zero channel, relative to the largest


@dataclass(frozen=True)
class Blocked:
    """Stored filter. both: input channels are blocked too (OIHWBiBo, not OIHWBo)."""

    held: Array | LazyArray
    blocks_inputs: bool

    def fits(self, block: int) -> bool:
        """Whether the dimensions are multiples of `block` as required."""
        m, c = self.held.shape[:2]
        return m % block == 0 and (not self.blocks_inputs or c % block == 0)

    def plain(self, block: int, kept: tuple[int, int] | None = None) -> Array | LazyArray:
        """Return the filter in plain order, cut to `kept` output and input channels; lazy if the stored one is."""
        held, (m, c) = self.held, kept or self.held.shape[:2]
        shape = (m, c, *held.shape[2:])
        if not isinstance(held, LazyArray):
            return _plain(held, block, self.blocks_inputs, m, c)
        key = (held.key, "nchwc", block, self.blocks_inputs, m, c)
        return LazyArray(held.dtype, shape, lambda: _plain(held.read(), block, self.blocks_inputs, m, c), key=key)

    def used_channels(self, block: int) -> int:
        """Return the number of input channels up to the last nonzero one; only the last block is inspected."""
        m, c, h, w = self.held.shape
        stored = self.held.read() if isinstance(self.held, LazyArray) else self.held
        last = stored.reshape(m // block, c // block, h * w, block, block)[:, -1]
        used = np.flatnonzero(last.any(axis=(0, 1, 3)))
        return c - block + (int(used[-1]) + 1 if used.size else 1)


def _plain(stored: Array, block: int, blocks_inputs: bool, m: int, c: int) -> Array:
    rows, channels, h, w = stored.shape
    if blocks_inputs:
        view = stored.reshape(rows // block, channels // block, h, w, block, block).transpose(0, 5, 1, 4, 2, 3)
    else:
        view = stored.reshape(rows // block, channels, h, w, block).transpose(0, 4, 1, 2, 3)
    return np.ascontiguousarray(view.reshape(rows, channels, h, w)[:m, :c])


def likelier_block(filters: Sequence[Blocked], candidates: Sequence[int]) -> int:
    """Return the block size that the contents of `filters` support; the first one if they are inconclusive.

    Trained filters differ in magnitude between channels. With a wrong block size each channel mixes elements of several
    channels: magnitudes become similar, and padded channels are no longer zero. The measure is the likelihood of the
    elements under one variance per output channel, and under one per input channel.
    """
    scores, channels = dict.fromkeys(candidates, 0.0), 0
    left = _MOST_ELEMENTS
    for blocked in filters:
        size = math.prod(blocked.held.shape)
        if size > left:
            continue
        left -= size
        channels += sum(blocked.held.shape[:2])
        for block in candidates:
            array = blocked.plain(block)
            squares = np.square((array.read() if isinstance(array, LazyArray) else array).astype(np.float64))
            for axis in (0, 1):
                energy = squares.mean(axis=tuple(i for i in range(4) if i != axis))
                floor = _LEAST_ENERGY * max(float(energy.max()), np.finfo(np.float64).tiny / _LEAST_ENERGY)
                scores[block] -= 0.5 * size / len(energy) * float(np.log(np.maximum(energy, floor)).sum())
    first = candidates[0]
    best = max(candidates, key=lambda b: scores[b])
    chance = 10 * math.sqrt(channels + 1)  # expected difference for random filters
    return best if scores[best] > scores[first] + chance else first
