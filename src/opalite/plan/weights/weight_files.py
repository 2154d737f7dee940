"""Files of large packed weights by content, shared by the plans of one model.

A decoder's plans for prompts and for single tokens have the same weights, as have plans for other input sizes. A file
is read when its array is needed and the device does not have it; the reader checks the checksum. Large gather-only
tables, such as embeddings, are memory-mapped: allocating memory for all rows would take longer than the rest of a
start. The files are never modified: a new file is written under another name and renamed.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BundleError
from ...ir.constants.lazy_array import LARGE, Array, LazyArray, page_empty

APART = LARGE
"""Least bytes of an array with a file of its own: opening a file takes as long as reading a quarter of that."""
MAPPED = 8 << 20
"""Least bytes of a gather-only table that is memory-mapped."""
SUFFIX = ".weight"
_SLICE = 1 << 20  # bytes read and checksummed at a time
_ROW = 256  # words
PART = 8 * _ROW
_BLOCK = 128  # rows summed in both directions while in a core's cache
_KEY = r"[0-9a-f]{16,128}"


class WeightFiles:
    """The files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, key: str, array: Array) -> None:
        """Write `array` under its content key, atomically, unless the file exists. Raises OSError."""
        if self.has(key, array.nbytes):
            return
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            with temporary.open("wb", buffering=0) as file:
                rest = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                while rest:
                    rest = rest[file.write(rest) :]
            os.replace(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def has(self, key: str, nbytes: int) -> bool:
        """Whether there is a file of that key and size; its access time is updated."""
        path = self._path(key)
        try:
            if path.stat().st_size != nbytes:
                return False
        except OSError:
            return False
        with suppress(OSError):  # a read-only cache serves all the same
            os.utime(path)
        return True

    def find(
        self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...], checksum: str, *, picked: bool = False
    ) -> LazyArray:
        """The array of that key, read on use. The read raises BundleError if the checksum differs.

        picked: whether the array is gather-only. `find` raises BundleError if no file has that key and size.
        """
        path = self._path(key)
        made = LazyArray(dtype, shape, lambda: load(path, nbytes, checksum).view(dtype).reshape(shape), key=key)
        made.contents.digest, made.contents.checksum = key, checksum
        nbytes = made.nbytes
        # On systems that lock mapped files, the cache could not remove them.
        load = _map if picked and nbytes >= MAPPED and os.name == "posix" else _read
        try:
            size = path.stat().st_size
        except OSError as e:
            raise BundleError(f"its weights '{path.name}' are gone ({e.strerror})") from e
        if size != nbytes:
            raise BundleError(f"its weights '{path.name}' have {size} bytes, {nbytes} are expected")
        with suppress(OSError):  # a read-only cache serves all the same
            os.utime(path)
        return made

    def _path(self, key: str) -> Path:
        if not re.fullmatch(_KEY, key):
            raise BundleError(f"{key!r} is not a content key")
        return self.folder / f"{key}{SUFFIX}"


def _read(path: Path, nbytes: int, checksum: str) -> Array:
    found = page_empty((nbytes,), np.uint8)
    done, summed, known = 0, 0, ByteSum(nbytes)
    try:
        with path.open("rb", buffering=0) as file:
            while done < nbytes and (count := file.readinto(found[done : done + _SLICE].data)):
                done += count
                ready = done if done == nbytes else done - done % PART
                known.add(found[summed:ready])  # while it is in a core's cache
                summed = ready
    except OSError as e:
        raise BundleError(f"'{path}' cannot be read: {e.strerror or e}") from e
    if done < nbytes or known.text != checksum:
        raise _damaged(path)
    return found


def _map(path: Path, nbytes: int, checksum: str) -> Array:
    try:
        with path.open("rb", buffering=0) as file:
            held = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_COPY)
    except OSError as e:
        raise BundleError(f"'{path}' cannot be read: {e.strerror or e}") from e
    except ValueError as e:  # it has become shorter
        raise _damaged(path) from e
    found = np.frombuffer(held, np.uint8)
    known = ByteSum(nbytes)
    known.add(found)
    if known.text != checksum:
        raise _damaged(path)
    return found


def _damaged(path: Path) -> BundleError:
    """The error about a damaged file, which is removed: the next process plans again."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return BundleError(f"'{path}' is damaged")


def byte_sum(array: Array) -> str:
    """The checksum of a C-contiguous array, hexadecimal."""
    found = ByteSum(array.nbytes)
    found.add(array.reshape(-1).view(np.uint8))
    return found.text


class ByteSum:
    """Checksum of `nbytes` bytes that arrive in order; all parts but the last are multiples of PART bytes.

    64-bit words are arranged in rows; the sums of all rows and columns, modulo 2^64, are hashed. A change within one
    word, row or column is always found, as is an exchange of rows or columns; a change of several words is found unless
    it cancels in both sums. It finds accidents, not forgeries. For 14 MB crc32 took 7 ms, blake2b 38 ms, this 1.3 ms.
    """

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
