"""The files beside a model's that hold its tensors' data: what they contain decides its plans as its own bytes do.

Which files there are is known when the model is imported, which a process with a plan does without: so their names are
kept in the cache beside the model's plans. What is in them is told by a digest. That of a file that was read before is
kept, and believed as long as the system says that the file is the same one and nobody has written to it: its number,
its size, and the times of its contents and of its state, which no program can set back. A file of the last seconds is
read each time, as a clock may stand still between two changes of it.

A file of more than HASHED bytes is not read to be told: its path, number, size and times stand for its contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....cache.cache_folder import cache_folder
from ....cache.cache_keys import digest
from ....cl.programs.build_parallelism import parallel_map
from ....errors import ModelFormatError
from ....ir.constants.model_file import HASHED, file_name

NAMES = "files.json"
"""The file that names a model's data files, in the folder of its plans."""

SETTLED_S = 2.0
"""How long ago a file has changed whose times tell that it did not since: some systems count whole seconds."""

_PIECE = 16 << 20


class ExternalDataFiles:
    """The data files of a model: locations as it names them, in `folder`, and what they contained when this was made.

    OSError if one cannot be read.
    """

    def __init__(self, folder: Path, locations: Sequence[str]) -> None:
        self.locations = tuple(locations)
        self._paths = [(folder / name).resolve() for name in self.locations]
        self._found = [_contents(path) for path in self._paths]

    @property
    def key(self) -> str:
        """Names the contents."""
        return digest(*self.locations, *(contents for _, contents in self._found))

    def check(self) -> None:
        """ModelFormatError if the files do not contain what they did."""
        for path, (stamp, contents) in zip(self._paths, self._found, strict=True):
            try:
                same = _stamp(path) == stamp or _contents(path)[1] == contents
            except OSError:
                same = False
            if not same:
                raise ModelFormatError(f"'{path}' has changed since the session was opened: open a new session")


def read_names(folder: Path) -> list[str]:
    """The locations that `keep_names` wrote into the folder of a model's plans; none if it did not."""
    try:
        found = json.loads((folder / NAMES).read_text())
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) and all(isinstance(n, str) for n in found) else []


def keep_names(folder: Path, locations: Sequence[str]) -> None:
    """Have later processes know which data files the model has."""
    _write(folder / NAMES, list(locations))


def _contents(path: Path) -> tuple[Any, str]:
    """(what tells whether a file has changed, digest of what it contains)."""
    stamp = _stamp(path)
    if stamp[2] > HASHED:
        return stamp, file_name(path, os.stat(path))
    kept = cache_folder() / "contents" / f"{digest(str(path))[:32]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(kept.read_text())
        if known["stamp"] == stamp:
            return stamp, str(known["digest"])
    asked = time.time()
    found = _sum(path)
    if _stamp(path) != stamp:
        raise OSError(f"'{path}' changes while it is read")
    if asked - max(stamp[3:]) / 1e9 > SETTLED_S:
        _write(kept, {"stamp": stamp, "digest": found})
    return stamp, found


def _stamp(path: Path) -> list[int]:
    found = os.stat(path)
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


def _write(path: Path, contents: Any) -> None:
    """Write JSON atomically; a cache that cannot be written serves all the same."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(contents))
        os.replace(temporary, path)
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
