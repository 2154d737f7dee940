"""Block: memory without a name that two processes share, by a file descriptor that one sends to the other.

It is gone when nobody has it open any more, so a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ..wire.infer_messages import Array

ALIGNMENT = 64
_LEAST = 1 << 16


class Block:
    """`bytes`: the memory as uint8, for as long as somebody holds it or a view of it. fd: open until `close_file`."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd, self.nbytes = fd, nbytes
        self.bytes: Array = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8)

    @classmethod
    def make(cls, nbytes: int) -> Self:
        """Memory of `nbytes` at least. OSError where there is none."""
        size = max(_LEAST, 1 << (nbytes - 1).bit_length()) if nbytes < 1 << 26 else -(-nbytes // (1 << 24)) << 24
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
        """Memory that another process made; the descriptor is this Block's from now on. OSError if it is smaller."""
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
        """Close the descriptor; the memory stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def view(self, offset: int, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
        """An array in the memory. ValueError where it does not lie within."""
        count = 1
        for size in shape:
            count *= size
        return self.bytes[offset : offset + count * dtype.itemsize].view(dtype).reshape(tuple(shape))

    def put(self, offset: int, array: Array) -> int:
        """Copy an array to `offset`, where it lies in row-major order; the offset behind it."""
        end = offset + array.nbytes
        if array.flags.c_contiguous:
            self.bytes[offset:end] = array.reshape(-1).view(np.uint8)
        else:
            self.view(offset, array.dtype, array.shape)[...] = array
        return end


def align(offset: int) -> int:
    """The next offset that an array may begin at."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("opalite-serve", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _forbid_shrinking(fd: int) -> None:
    """Nobody who has it open may make it smaller: a read past the end of a file ends the process that reads."""
    if hasattr(fcntl, "F_ADD_SEALS"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
