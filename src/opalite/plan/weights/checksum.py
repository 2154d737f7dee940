"""A checksum of an array's bytes at the speed of reading them.

64-bit words are arranged in rows; the sums of all rows and columns, modulo 2^64, are hashed. A change within one word,
row or column is always found, as is an exchange of rows or columns; a change of several words is found unless it
cancels in both sums. It finds accidents, not forgeries. For 14 MB crc32 took 7 ms, blake2b 38 ms, this 1.3 ms.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ...ir.constants.lazy_array import Array

_ROW = 256  # words
PART = 8 * _ROW
_BLOCK = 128  # rows summed in both directions while in a core's cache


def byte_sum(array: Array) -> str:
    """The checksum of a C-contiguous array, hexadecimal."""
    found = ByteSum(array.nbytes)
    found.add(array.reshape(-1).view(np.uint8))
    return found.text


class ByteSum:
    """Checksum of `nbytes` bytes that arrive in order; all parts but the last are multiples of PART bytes."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._rows = np.empty(nbytes // (8 * _ROW), "<u8")
        self._columns = np.zeros(_ROW, "<u8")
        self._done = 0  # rows
        self._rest = b""

    def add(self, part: Array) -> None:
        """Add a part, uint8."""
        rows = min(part.nbytes // (8 * _ROW), len(self._rows) - self._done)
        words = part[: rows * 8 * _ROW].view("<u8").reshape(rows, _ROW)
        for first in range(0, rows, _BLOCK):
            block = words[first : first + _BLOCK]
            at = self._done + first
            block.sum(axis=1, dtype=np.uint64, out=self._rows[at : at + len(block)])
            self._columns += block.sum(axis=0, dtype=np.uint64)
        self._done += rows
        self._rest += part[words.nbytes :].tobytes()

    @property
    def text(self) -> str:
        """The checksum, hexadecimal."""
        found = hashlib.blake2b(self._nbytes.to_bytes(8, "little"), digest_size=16)
        for sums in (self._rows, self._columns) if len(self._rows) else ():
            found.update(sums.data)
        found.update(self._rest)
        return found.hexdigest()
