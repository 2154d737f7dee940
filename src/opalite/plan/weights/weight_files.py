"""Large constants of plans in files of their own, by content: plans of one model hold most of them together.

A decoder's plan for prompts and that for the tokens after them have the same weights, as have plans for other sizes of
inputs. A file is read when its array is wanted on the device, and not where the device has it already; whether the
contents are what was written, the reader checks by their sum. Large tables of which runs pick rows, such as a decoder's
embedding, are mapped: nobody writes into these files, which are made under another name and renamed, and memory for
all rows takes longer to get than the rest of a start.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BundleError
from ...ir.constants.lazy_array import LARGE, LazyArray, page_empty
from .checksum import PART, ByteSum

Array = np.ndarray[Any, Any]

APART = LARGE
"""Bytes from which an array gets a file: opening one takes as long as reading a quarter of that."""
MAPPED = 8 << 20
"""Bytes from which a table of which rows are picked is mapped."""
SUFFIX = ".weight"
_SLICE = 1 << 20  # bytes that are read, and summed up, at a time
_KEY = re.compile(r"[0-9a-f]{16,128}")


class WeightFiles:
    """The files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, key: str, array: Array) -> None:
        """Write `array`, whose contents `key` names, unless it is there: whoever reads sees a whole file. OSError."""
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
        """Whether there is a file of that name and size, which counts as used then."""
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
        """The array of that name, read when it is asked for: BundleError then, unless it is what was written.

        picked: runs read some of its rows. BundleError now if there is no such file of its size.
        """
        path = self._path(key)
        made = LazyArray(dtype, shape, lambda: load(path, nbytes, checksum).view(dtype).reshape(shape), key=key)
        made.contents.digest, made.contents.checksum = key, checksum
        nbytes = made.nbytes
        # A system that locks mapped files would keep the cache from removing them.
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
        if not _KEY.fullmatch(key):
            raise BundleError(f"{key!r} is no name of an array")
        return self.folder / f"{key}{SUFFIX}"


def _read(path: Path, nbytes: int, checksum: str) -> Array:
    found = page_empty((nbytes,), np.uint8)
    done, summed, known = 0, 0, ByteSum(nbytes)
    try:
        with path.open("rb", buffering=0) as file:
            while done < nbytes and (count := file.readinto(found[done : done + _SLICE].data)):
                done += count
                ready = done if done == nbytes else done - done % PART
                known.add(found[summed:ready])  # while a core's cache has it
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
    """The fault of a file, which is removed: the next process makes the plan again."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return BundleError(f"'{path}' is damaged")
