"""A model's file, or a file of its tensors' data, of which a part is read when it is asked for.

The file stays open, so that it may be moved, removed or replaced by another. What is written into it while a session
works with it is found out: nothing is mapped, and no part is taken from a file that is no longer what it was.
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
from .lazy_array import LazyArray, mapped_part, page_empty

Array = np.ndarray[Any, Any]

HASHED = 1 << 28
"""Bytes of a file up to which its contents name it; a larger one is named by its path, number, size and times."""


def file_name(path: Path, state: os.stat_result) -> str:
    """Names the contents of a large file, hexadecimal, as long as nobody writes to it."""
    parts = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


class ModelFile:
    """An open file. Thread-safe; processes forked from this one may read on."""

    def __init__(self, path: Path) -> None:
        """OSError if there is no such file, or if it is not a regular file, which is found out without a wait."""
        self.path = path
        self._file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115  (it stays open)
        self._lock = Lock()
        self._stamp = self._now()
        if not stat.S_ISREG(self._stamp.st_mode):
            self._file.close()
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        self._digest = ""
        self.size = self._stamp.st_size

    def digest(self) -> str:
        """Digest of all bytes (BLAKE2), from which on a file that was only touched counts as the same; of a large file
        its name (`file_name`)."""
        if self.size > HASHED:
            return file_name(self.path, self._stamp)
        if not self._digest:
            before = self._now()
            self._digest = self._sum()
            self._stamp = before
        return self._digest

    def read(self, offset: int, nbytes: int) -> Array:
        """`nbytes` bytes from `offset` on, as uint8. ModelFormatError if the file is no longer what it was."""
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
        """The same, of which pages are read when they are touched. What is written into the file shows, and the process
        ends where it was cut short: for large tables, of which a few rows are read."""
        self.check()
        before = offset % mmap.ALLOCATIONGRANULARITY
        held = mmap.mmap(self._file.fileno(), before + nbytes, access=mmap.ACCESS_COPY, offset=offset - before)
        return np.frombuffer(held, np.uint8, nbytes, before)

    def name_of(self, offset: int, nbytes: int) -> str:
        """Names `nbytes` bytes from `offset` on, hexadecimal, as long as nobody writes to the file."""
        return hashlib.sha256(f"{file_name(self.path, self._stamp)} {offset} {nbytes}".encode()).hexdigest()

    def check(self) -> None:
        """ModelFormatError if the file is no longer what it was."""
        now, stamp = self._now(), self._stamp
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
        """Whether it is what it was, and still the file of its name."""
        now = self._now()
        return _key(now) == _key(self._stamp) and not self._is_moved(now)

    def _is_moved(self, now: os.stat_result) -> bool:
        """Whether another file has its name, or none, which alone changes the time of its state."""
        try:
            return not os.path.samestat(os.stat(self.path), now)
        except OSError:
            return True

    def _changed(self) -> ModelFormatError:
        return ModelFormatError(f"'{self.path}' has changed since the session was opened: open a new session")

    def _now(self) -> os.stat_result:
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
    """An opener that waits for nobody at the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class FilePart:
    """`nbytes` of a ModelFile from `offset` on, which nobody has read yet."""

    def __init__(self, file: ModelFile, offset: int, nbytes: int) -> None:
        self.file = file
        self.offset = offset
        self.nbytes = nbytes

    def read(self) -> Array:
        """The bytes, as uint8. ModelFormatError if the file is no longer what it was."""
        return self.file.read(self.offset, self.nbytes)

    def mapped(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> LazyArray:
        """The array of that type that they are, mapped (ModelFile.map)."""
        name, source = self.file.name_of(self.offset, self.nbytes), (os.path.realpath(self.file.path), self.offset)
        return mapped_part(dtype, shape, name, lambda: self.file.map(self.offset, self.nbytes), source)

    def read_bytes(self, first: int, count: int) -> Array:
        """`count` of the bytes from the one numbered `first` on, as `read`."""
        return self.file.read(self.offset + first, count)
