"""A model's file, or a file of its tensors' data, of which a part is read when it is asked for.

The file stays open, so that it may be moved, removed or replaced by another. What is written into it while a session
works with it is found out: nothing is mapped, and no part is taken from a file that is no longer what it was.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ..errors import ModelFormatError
from .stored import page_empty

Array = np.ndarray[Any, Any]


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
        """Digest of all bytes (BLAKE2). From then on a file that was only touched counts as the same."""
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

    def read_bytes(self, first: int, count: int) -> Array:
        """`count` of the bytes from the one numbered `first` on, as `read`."""
        return self.file.read(self.offset + first, count)
