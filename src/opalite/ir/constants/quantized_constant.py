"""QuantizedConstant: low-bit integers, scales and zero points of a dequantized constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...lazy_dataclass import dataclass
from .lazy_array import Array, LazyArray, page_empty, read_part, read_slices

SMALLEST = 1 << 14
"""Fewest elements of a constant whose integers are kept: smaller ones fit in a core's cache as floats."""


@dataclass(frozen=True, eq=False)
class QuantizedConstant:
    """A constant (codes - zero) * scale, computed in float32.

    codes: the integers, perhaps lazy. bits: significant bits of each. scale, zero (None: 0): broadcast against codes
    after each element is repeated `block` times along `axis`; `block` 0 repeats nothing. A lazy scale is a matrix with
    a row for each row of codes. turned: the constant is the transpose of that matrix. rounds: activations multiplied
    with the constant may be quantized to 8 bits, in groups. table: float values that the codes index; () if codes are
    numbers.
    """

    codes: Array | LazyArray
    scale: Array | LazyArray
    zero: Array | None
    bits: int = 8
    axis: int = 0
    block: int = 0
    turned: bool = False
    rounds: bool = False
    table: tuple[float, ...] = ()

    @property
    def q(self) -> Array:
        """All integers, in memory."""
        return self.codes.read() if isinstance(self.codes, LazyArray) else self.codes

    @property
    def scales(self) -> Array:
        """All scales, in memory."""
        return self.scale.read() if isinstance(self.scale, LazyArray) else self.scale

    def rows(self, first: int, last: int, dtype: Any = np.float32) -> Array:
        """Dequantized rows `first` to before `last` along the first axis of `codes`."""
        read = read_part(self.codes, first, last)
        real = np.array(self.table, np.float32)[read] if self.table else read.astype(np.float32)
        if self.zero is not None:
            real -= self._spread(self.zero, first, last)
        real *= self._spread(self.scale, first, last)
        return real.astype(dtype, copy=False)

    def contents(self, dtype: Any) -> LazyArray:
        """The dequantized constant, computed at each load, by rows on demand."""
        shape = self.codes.shape

        def load() -> Array:
            out = page_empty(shape[::-1] if self.turned else shape, dtype)
            whole = out.T if self.turned else out
            for part, _ in read_slices(self.codes):
                whole[part] = self.rows(part.start, part.stop, dtype)
            return out

        if self.turned:
            return LazyArray(np.dtype(dtype), shape[::-1], load)
        return LazyArray(np.dtype(dtype), shape, load, load_rows=lambda a, b: self.rows(a, b, dtype))

    def _spread(self, part: Array | LazyArray, first: int, last: int) -> Array:
        """A scale or zero point in float32, broadcast to those rows of codes."""
        if isinstance(part, LazyArray):
            part, first, last = part.read_rows(first, last), 0, last - first
        shape, axis = self.codes.shape, self.axis % max(1, len(self.codes.shape))
        wide = part.astype(np.float32, copy=False)
        if wide.size == 1:
            return wide.reshape(())
        wide = wide.reshape((1,) * (len(shape) - wide.ndim) + wide.shape)
        if self.block and axis == 0:
            return wide[np.arange(first, last) // self.block]
        if wide.shape[0] > 1:
            wide = wide[first:last]
        if self.block:
            wide = np.repeat(wide, self.block, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
        return wide
