"""ModelFile: an open model or tensor data file, read in parts on demand.

The file stays open, so that it may be moved, removed or replaced. Every read checks that the file is unchanged. Nothing
is memory-mapped except on request (`map`).
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ...errors import ModelFormatError
from .lazy_array import Array, LazyArray, mapped_part, page_empty

HASHED = 1 << 28
"""Largest file, in bytes, that is identified by its contents; a larger one by path, inode, size and times."""


def file_name(path: Path, state: os.stat_result) -> str:
    """Identifier of a large file's contents, hexadecimal; it changes when the file is written."""
    parts = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


class ModelFile:
    """An open file. Thread-safe; usable in forked processes."""

    def __init__(self, path: Path) -> None:
        """OSError if the file does not exist or is not a regular file. Opening a pipe does not block."""
        self.path = path
        self._file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115  (it stays open)
        self._lock = Lock()
        self._stamp = self.state()
        if not stat.S_ISREG(self._stamp.st_mode):
            self._file.close()
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        self._digest = ""
        self.size = self._stamp.st_size

    def digest(self) -> str:
        """BLAKE2 of all bytes, so that a touched file counts as unchanged; of a large file its `file_name`."""
        if self.size > HASHED:
            return file_name(self.path, self._stamp)
        if not self._digest:
            before = self.state()
            self._digest = self._sum()
            self._stamp = before
        return self._digest

    def read(self, offset: int, nbytes: int) -> Array:
        """`nbytes` bytes from `offset` on, as uint8. ModelFormatError if the file has changed."""
        found = page_empty((nbytes,), np.uint8)
        done = 0
        while done < nbytes:
            count = self._read_into(found[done:].data, offset + done)
            if not count:
                raise self._changed()
            done += count
        self.check()
        return found

    def map(self, offset: int, nbytes: int) -> Array:
        """The same bytes memory-mapped, for large tables of which few rows are read.

        Later writes to the file show in the array. A truncated file ends the process.
        """
        self.check()
        before = offset % mmap.ALLOCATIONGRANULARITY
        held = mmap.mmap(self._file.fileno(), before + nbytes, access=mmap.ACCESS_COPY, offset=offset - before)
        return np.frombuffer(held, np.uint8, nbytes, before)

    def name_of(self, offset: int, nbytes: int) -> str:
        """Identifier of `nbytes` bytes from `offset` on, hexadecimal; it changes when the file is written."""
        return hashlib.sha256(f"{file_name(self.path, self._stamp)} {offset} {nbytes}".encode()).hexdigest()

    def check(self) -> None:
        """ModelFormatError if the file has changed."""
        now, stamp = self.state(), self._stamp
        if _key(now) == _key(stamp):
            return
        if self._digest:
            same = now.st_size == self.size and self._sum() == self._digest
        else:
            same = _key(now)[:2] == _key(stamp)[:2] and self._is_moved(now)
        if not same:
            raise self._changed()
        self._stamp = now

    @property
    def is_in_place(self) -> bool:
        """Whether the file is unchanged and its path still refers to it."""
        now = self.state()
        return _key(now) == _key(self._stamp) and not self._is_moved(now)

    def _is_moved(self, now: os.stat_result) -> bool:
        """Whether the path refers to another file or to none. A move alone changes the ctime."""
        try:
            return not os.path.samestat(os.stat(self.path), now)
        except OSError:
            return True

    def _changed(self) -> ModelFormatError:
        return ModelFormatError(f"'{self.path}' has changed since the session was opened: open a new session")

    def state(self) -> os.stat_result:
        """The state of the open file now."""
        return os.fstat(self._file.fileno())

    def _sum(self) -> str:
        sha, block, offset = hashlib.blake2b(), bytearray(1 << 20), 0
        while count := self._read_into(memoryview(block), offset):
            sha.update(memoryview(block)[:count])
            offset += count
        return sha.hexdigest()

    def _read_into(self, target: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [target], offset)
        with self._lock:
            self._file.seek(offset)
            return self._file.readinto(target)


def _key(state: os.stat_result) -> tuple[int, ...]:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _open_at_once(path: str, flags: int) -> int:
    """An opener that does not block on a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class FilePart:
    """A part of a ModelFile: `nbytes` bytes from `offset` on, not read yet."""

    def __init__(self, file: ModelFile, offset: int, nbytes: int) -> None:
        self.file = file
        self.offset = offset
        self.nbytes = nbytes

    def read(self) -> Array:
        """The bytes, as uint8. ModelFormatError if the file has changed."""
        return self.file.read(self.offset, self.nbytes)

    def mapped(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> LazyArray:
        """The bytes memory-mapped as an array of that dtype and shape (ModelFile.map)."""
        name, source = self.file.name_of(self.offset, self.nbytes), (os.path.realpath(self.file.path), self.offset)
        return mapped_part(dtype, shape, name, lambda: self.file.map(self.offset, self.nbytes), source)

    def held(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> LazyArray:
        """The bytes as an array of that dtype and shape, read when used."""
        load = lambda: self.read().view(dtype).reshape(shape)  # noqa: E731
        mapped = lambda: self.mapped(dtype, shape)  # noqa: E731
        return LazyArray(dtype, shape, load, load_bytes=self.read_bytes, mapped=mapped)

    def read_bytes(self, first: int, count: int) -> Array:
        """`count` bytes from byte `first` of this part, as `read`."""
        return self.file.read(self.offset + first, count)
