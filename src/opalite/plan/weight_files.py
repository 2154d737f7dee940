"""Large constants of plans in files of their own, by content: plans of one model hold most of them together.

A decoder's plan for prompts and that for the tokens after them have the same weights, as have plans for other sizes of
inputs. A file is read when its array is wanted on the device, and not where the device has it already. Nothing is
mapped, as in tensor_file.py; whether the contents are what was written, the reader checks by their sum.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BundleError
from ..ir.stored import LARGE, StoredArray, page_empty
from .sums import PART, ByteSum

Array = np.ndarray[Any, Any]

APART = LARGE
"""Bytes from which an array gets a file: opening one takes as long as reading a quarter of that."""
SUFFIX = ".weight"
_SLICE = 1 << 20  # bytes that are read, and summed up, at a time
_KEY = re.compile(r"[0-9a-f]{16,128}")


class WeightFiles:
    """The files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, key: str, array: Array) -> None:
        """Write `array`, whose contents `key` names, unless it is there: whoever reads sees a whole file. OSError."""
        path = self._path(key)
        with suppress(OSError):
            if path.stat().st_size == array.nbytes:
                os.utime(path)
                return
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

    def find(self, key: str, dtype: np.dtype[Any], shape: tuple[int, ...], checksum: str) -> StoredArray:
        """The array of that name, read when it is asked for: BundleError then, unless it is what was written.

        BundleError now if there is no such file of its size.
        """
        path = self._path(key)
        made = StoredArray(dtype, shape, lambda: _read(path, nbytes, checksum).view(dtype).reshape(shape), key=key)
        nbytes = made.nbytes
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
        with suppress(OSError):  # the next process makes the plan again
            path.unlink(missing_ok=True)
        raise BundleError(f"'{path}' is damaged")
    return found
