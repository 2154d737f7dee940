"""Hit and miss counters of caches, of this process and of all processes with the same cache folder.

A process appends one line to counts.txt at its end; a killed process adds nothing. Short appends of several processes
do not mix. Invalid lines are ignored. Needs no OpenCL.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from pathlib import Path

from ..lazy_dataclass import dataclass
from .cache_folder import usable_folder

CACHES = ("programs", "plans", "tuning", "weights")
_COMPACT_BYTES = 1 << 16  # file size from which the lines are merged into one


@dataclass(frozen=True)
class Count:
    """Hits and misses of one cache."""

    hits: int = 0
    misses: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.hits + other.hits, self.misses + other.misses)


Counts = dict[str, Count]
"""Count by name, for all of CACHES."""

_own: Counts = {}
_lock = threading.Lock()


def count_lookup(cache: str, hit: bool) -> None:
    """Count a lookup of `cache`, one of CACHES."""
    with _lock:
        if not _own:
            atexit.register(_save, os.getpid())
        _own[cache] = _own.get(cache, Count()) + (Count(1, 0) if hit else Count(0, 1))


def process_counts() -> Counts:
    """Counts of this process."""
    with _lock:
        return {name: _own.get(name, Count()) for name in CACHES}


def all_counts(folder: Path) -> Counts:
    """Counts of ended processes since the cache in `folder` was cleared."""
    try:
        return _parse((folder / "counts.txt").read_text(errors="replace"))
    except OSError:
        return _parse("")


def add_counts(folder: Path, counts: Counts) -> None:
    """Add to the counts in `folder`. Ignored if that fails."""
    path = folder / "counts.txt"
    with suppress(OSError):
        _append(path, counts)
        if path.stat().st_size > _COMPACT_BYTES:
            moved = folder / f".tmp-counts-{os.getpid()}"
            os.replace(path, moved)  # fails for all but one of several processes
            _append(path, _parse(moved.read_text(errors="replace")))
            moved.unlink()


def forget_counts(folder: Path) -> None:
    """Reset the counts in `folder`."""
    with suppress(OSError):
        (folder / "counts.txt").unlink(missing_ok=True)


def _save(pid: int) -> None:
    """Write this process's counts, unless it is a child forked from process `pid`."""
    if os.getpid() == pid and (kept := usable_folder()) is not None:
        add_counts(kept, process_counts())


def _append(path: Path, counts: Counts) -> None:
    line = " ".join(f"{name} {c.hits} {c.misses}" for name, c in counts.items())
    with open(path, "ab", buffering=0) as f:
        f.write(f"{line}\n".encode())


def _parse(text: str) -> Counts:
    found = dict.fromkeys(CACHES, Count())
    for line in text.splitlines():
        words = line.split()
        with suppress(ValueError):
            numbers = list(map(int, [*words[1::3], *words[2::3]]))
            if words[::3] != list(CACHES) or len(numbers) != 2 * len(CACHES) or min(numbers) < 0:
                continue
            for i, name in enumerate(CACHES):
                found[name] += Count(numbers[i], numbers[i + len(CACHES)])
    return found
