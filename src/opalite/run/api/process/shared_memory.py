"""Anonymous shared memory of two processes: Block has a fixed size, SharedArrays grows.

One process creates the memory and passes the file descriptor to the other. The system frees the memory when neither
process has it open, so a killed process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
_MIN_BYTES = 1 << 16


class Block:
    """Shared memory of `nbytes` bytes, mapped as the uint8 array `bytes`. fd: its file, open until `close_file`."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd, self.nbytes = fd, nbytes
        self.bytes: Array = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8)

    @classmethod
    def make(cls, nbytes: int) -> Self:
        """Create memory of at least `nbytes`. Raises OSError if the system has too little."""
        size = max(_MIN_BYTES, 1 << (nbytes - 1).bit_length()) if nbytes < 1 << 26 else -(-nbytes // (1 << 24)) << 24
        fd = _anonymous_file()
        try:
            os.ftruncate(fd, size)
            _forbid_shrinking(fd)
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open(cls, fd: int, nbytes: int) -> Self:
        """Map memory that the other process created, and close `fd`. Raises OSError if it is smaller than `nbytes`."""
        try:
            if os.fstat(fd).st_size < nbytes:
                raise OSError("shared memory is smaller than was said")
            block = cls(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise
        block.close_file()
        return block

    def close_file(self) -> None:
        """Close the descriptor. The mapping stays valid."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def view(self, offset: int, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        """The array at `offset`, without a copy. Raises ValueError if it extends past the end of the block."""
        return self.bytes[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype).reshape(tuple(shape))

    def put(self, offset: int, array: Array) -> int:
        """Copy an array to `offset` in row-major order; returns the offset after its last byte."""
        end = offset + array.nbytes
        if array.flags.c_contiguous:
            self.bytes[offset:end] = array.reshape(-1).view(np.uint8)
        else:
            self.view(offset, array.dtype, array.shape)[...] = array
        return end


class ArraySlot(NamedTuple):
    """The position of one array in SharedArrays."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class SharedArrays:
    """Arrays that one process writes and the other reads. Each process has a SharedArrays of the same file.

    Values other than numeric arrays (text, lists, scalars) are passed through in the list that `put` returns. On
    Windows, whose child processes inherit no anonymous files, so are numeric arrays.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """descriptor: the file that the other process created; None creates one."""
        self.descriptor = (_anonymous_file() if os.name == "posix" else -1) if descriptor is None else descriptor
        self._block: Block | None = None
        if self.descriptor >= 0:
            weakref.finalize(self, os.close, self.descriptor)

    def put(self, values: Sequence[Any]) -> tuple[int, list[Any]]:
        """Write the arrays over those of the last `put`; returns the argument of the other process's `get`."""
        slots: list[Any] = []
        end = 0
        for value in values:
            if isinstance(value, np.ndarray) and not value.dtype.hasobject and value.nbytes and self.descriptor >= 0:
                slots.append(ArraySlot(end, value.dtype, value.shape))
                end = align(end + value.nbytes)
            else:
                slots.append(value)
        size = 0 if self._block is None else self._block.nbytes
        if end > size:
            os.ftruncate(self.descriptor, size := end)
        for value, slot in zip(values, slots, strict=True):
            if isinstance(slot, ArraySlot):
                self._mapped(size).put(slot.offset, value)
        return size, slots

    def get(self, put: tuple[int, list[Any]]) -> list[tuple[Any, bool]]:
        """The values of the other process's `put`, each with whether it is a view that the next `put` overwrites."""
        size, slots = put
        return [(self._mapped(size).view(*s), True) if isinstance(s, ArraySlot) else (s, False) for s in slots]

    def _mapped(self, size: int) -> Block:
        """At least the first `size` bytes of the file. Views of an earlier, shorter mapping stay valid."""
        if self._block is None or self._block.nbytes < size:
            self._block = Block(self.descriptor, size)
        return self._block


def align(offset: int) -> int:
    """`offset` rounded up to the alignment of arrays."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("opalite", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _forbid_shrinking(fd: int) -> None:
    """Keep processes from truncating the file: reading past the end of a mapped file kills the reader."""
    import fcntl  # not on Windows

    if hasattr(fcntl, "F_ADD_SEALS"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
