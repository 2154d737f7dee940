"""Counters of a Runtime's driver work: tests assert that repeated runs build, allocate and set nothing."""

from __future__ import annotations

import threading
from dataclasses import field, replace

from ..lazy_dataclass import dataclass


@dataclass
class Counters:
    """Totals since the Runtime was made. The difference of two snapshots counts the work between them.

    `+=` on a field runs without a GIL release in between, so threads lose no counts. Programs are counted under their
    cache's lock.
    """

    programs_built: int = 0  # compiled from source
    programs_built_in_background: int = 0  # of those: in the background
    programs_loaded: int = 0  # loaded as binaries
    programs_from_bundle: int = 0  # of those: from a bundle
    kernels_made: int = 0
    memory_objects: int = 0  # buffers, sub-buffers and images
    bytes_allocated: int = 0
    args_set: int = 0
    enqueues: int = 0  # launches, replayed ones included
    recordings: int = 0  # of launches, for replay
    replays: int = 0  # recordings enqueued
    transfers: int = 0  # reads, writes, fills and copies

    def snapshot(self) -> Counters:
        """A copy of the current counts."""
        return replace(self)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(*(getattr(self, f) - getattr(earlier, f) for f in self.__dataclass_fields__))


@dataclass
class ProgramCounts:
    """Counts requested programs by source. Thread-safe.

    built: compiled; loaded: binaries of the cache folder or a bundle; shared: already in this process.
    in_background: no caller waits for them.
    """

    built: int = 0
    loaded: int = 0
    shared: int = 0
    build_s: float = 0.0
    in_background: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, built: int = 0, loaded: int = 0, shared: int = 0, build_s: float = 0.0) -> None:
        """Add to the counts."""
        with self._lock:
            self.built += built
            self.loaded += loaded
            self.shared += shared
            self.build_s += build_s
