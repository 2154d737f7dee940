"""Counts of what a Runtime did, so that tests can assert that a steady state builds, allocates and sets nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass
class Counters:
    """Totals since the Runtime was made. Subtract two snapshots to see what a stretch of work did."""

    programs_built: int = 0  # compiled from source
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
