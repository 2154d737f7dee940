"""How often caches had what was asked for: in this process, and in all that share the cache folder.

A process that ends adds one line to counts.txt in the cache folder; one that is killed adds nothing. A line is one
short append, so lines of several processes do not mix, and what is no such line is passed over. Needs no OpenCL.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .cache_folder import usable_folder

CACHES = ("programs", "plans", "tuning", "weights")
_LONG = 1 << 16  # bytes of the file from which on its lines are summed up to one


@dataclass(frozen=True)
class Count:
    """Lookups of one cache that found something, and that did not."""

    hits: int = 0
    misses: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.hits + other.hits, self.misses + other.misses)


Counts = dict[str, Count]
"""By name of the cache, every one of CACHES."""

_own: Counts = {}
_lock = threading.Lock()


def count_lookup(cache: str, hit: bool) -> None:
    """Count one lookup of `cache`, one of CACHES."""
    with _lock:
        if not _own:
            atexit.register(_keep, os.getpid())
        _own[cache] = _own.get(cache, Count()) + (Count(1, 0) if hit else Count(0, 1))


def process_counts() -> Counts:
    """Lookups of this process."""
    with _lock:
        return {name: _own.get(name, Count()) for name in CACHES}


def all_counts(folder: Path) -> Counts:
    """Lookups of the processes that have ended since the cache in `folder` was cleared."""
    try:
        return _parse((folder / "counts.txt").read_text(errors="replace"))
    except OSError:
        return _parse("")


def add_counts(folder: Path, counts: Counts) -> None:
    """Add to what is kept in `folder`, if it exists; what cannot be written is not counted."""
    path = folder / "counts.txt"
    with suppress(OSError):
        _append(path, counts)
        if path.stat().st_size > _LONG:
            aside = folder / f".tmp-counts-{os.getpid()}"
            os.replace(path, aside)  # fails for all but one of several processes
            _append(path, _parse(aside.read_text(errors="replace")))
            aside.unlink()


def forget_counts(folder: Path) -> None:
    """Count from nought again."""
    with suppress(OSError):
        (folder / "counts.txt").unlink(missing_ok=True)


def _keep(pid: int) -> None:
    """Write this process's counts; a process forked from it, where `pid` is another's, has none of its own."""
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
