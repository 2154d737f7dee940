"""ExternalDataFiles: the data files of a model, whose contents decide its plans like the model's own bytes.

The names of the files are known after the import only, so the names are stored with the model's plans. A digest
identifies a file's contents. The cached digest is valid while inode, size, mtime and ctime are unchanged; no program
can set the ctime back. Files changed in the last seconds are read each time, because clocks are
coarse. A file of more than HASHED bytes is not read: path, inode, size and times identify its contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....cache.cache_folder import cache_folder, write_json
from ....cache.cache_keys import digest
from ....cl.programs.build_parallelism import parallel_map
from ....errors import ModelFormatError
from ....ir.constants.model_file import HASHED, ModelFile, file_name

NAMES = "files.json"
"""File with the names of a model's data files, in the folder of its plans."""

SETTLED_S = 2.0
"""Age in seconds from which a file's times are reliable: some systems count whole seconds."""

_PIECE = 16 << 20


class ExternalDataFiles:
    """The data files of a model: their locations in `folder`, and their contents when this was made.

    OSError if one cannot be read.
    """

    def __init__(self, folder: Path, locations: Sequence[str]) -> None:
        self.locations = tuple(locations)
        self._paths = [(folder / name).resolve() for name in self.locations]
        self._found = [_contents(path) for path in self._paths]

    @property
    def key(self) -> str:
        """Digest of names and contents."""
        return digest(*self.locations, *(contents for _, contents in self._found))

    def check(self) -> None:
        """ModelFormatError if the contents have changed."""
        for path, (stamp, contents) in zip(self._paths, self._found, strict=True):
            try:
                same = _stamp(path) == stamp or _contents(path)[1] == contents
            except OSError:
                same = False
            if not same:
                raise ModelFormatError(f"'{path}' has changed since the session was opened: open a new session")


def read_names(folder: Path) -> list[str]:
    """The locations that `store_names` wrote into the folder of a model's plans; none without that file."""
    try:
        found = json.loads((folder / NAMES).read_text())
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) and all(isinstance(n, str) for n in found) else []


def store_names(folder: Path, locations: Sequence[str]) -> None:
    """Store the names of a model's data files for later processes."""
    write_json(folder / NAMES, list(locations))


def model_file_digest(file: ModelFile) -> str:
    """Digest of the bytes of a model's file, cached as those of data files. OSError if it changes meanwhile."""
    if file.size > HASHED:
        return file.digest()
    return _cached(digest("model", os.path.abspath(file.path)), lambda: _numbers(file.state()), file.digest)[1]


def _contents(path: Path) -> tuple[Any, str]:
    """(stamp that changes with the file, digest of its contents)."""
    stamp = _stamp(path)
    if stamp[2] > HASHED:
        return stamp, file_name(path, os.stat(path))
    return _cached(digest(str(path)), lambda: _stamp(path), lambda: _sum(path))


def _cached(key: str, stamp_of: Callable[[], list[int]], compute: Callable[[], str]) -> tuple[list[int], str]:
    """(stamp of a file, digest of its contents), by `compute` unless one for the same stamp is cached under `key`."""
    stamp = stamp_of()
    kept = cache_folder() / "contents" / f"{key[:32]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(kept.read_text())
        if known["stamp"] == stamp:
            return stamp, str(known["digest"])
    asked = time.time()
    found = compute()
    if stamp_of() != stamp:
        raise OSError("a file of the model changes while it is read")
    if asked - max(stamp[3:]) / 1e9 > SETTLED_S:
        write_json(kept, {"stamp": stamp, "digest": found})
    return stamp, found


def _stamp(path: Path) -> list[int]:
    return _numbers(os.stat(path))


def _numbers(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _sum(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size

        def piece(offset: int) -> bytes:
            with path.open("rb", buffering=0) as own:
                own.seek(offset)
                sha, rest = hashlib.sha256(), min(_PIECE, size - offset)
                block = memoryview(bytearray(1 << 20))
                while rest and (count := own.readinto(block[: min(rest, len(block))])):
                    sha.update(block[:count])
                    rest -= count
            return sha.digest()

        whole = hashlib.sha256(size.to_bytes(8, "little"))
        for part in parallel_map(piece, range(0, size, _PIECE)):
            whole.update(part)
    return whole.hexdigest()
