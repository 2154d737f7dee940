"""Counts of what a Runtime did, so that tests can assert that a steady state builds, allocates and sets nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace


@dataclass
class Counters:
    """Totals since the Runtime was made. Subtract two snapshots to see what a stretch of work did.

    Whoever adds to one reads nothing between reading and storing it, so that threads do not lose each other's counts;
    programs are counted under their cache's lock.
    """

    programs_built: int = 0  # compiled from source
    programs_built_in_background: int = 0  # of those: while nobody waited for them
    programs_loaded: int = 0  # taken from the binary cache
    kernels_made: int = 0
    memory_objects: int = 0  # buffers, sub-buffers and images
    bytes_allocated: int = 0
    args_set: int = 0
    enqueues: int = 0  # launches, replayed ones included
    recordings: int = 0  # command buffers made
    replays: int = 0  # command buffers enqueued
    transfers: int = 0  # reads, writes, fills and copies

    def snapshot(self) -> Counters:
        """The counts as they are now."""
        return replace(self)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(*(getattr(self, f) - getattr(earlier, f) for f in self.__dataclass_fields__))


@dataclass
class ProgramCounts:
    """Where the programs came from that somebody asked for. Thread-safe.

    built: compiled from source; loaded: a binary of the cache folder or a bundle; shared: there in this process.
    is_behind: nobody waits for them.
    """

    built: int = 0
    loaded: int = 0
    shared: int = 0
    build_s: float = 0.0
    in_background: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, built: int = 0, loaded: int = 0, shared: int = 0, build_s: float = 0.0) -> None:
        """Count some more."""
        with self._lock:
            self.built += built
            self.loaded += loaded
            self.shared += shared
            self.build_s += build_s
