"""Launch of a linked kernel, as the host sees it: name, shape, argument and synchronization memory.

A later process launches kernels that an earlier one has linked, without the modules that link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAME = "linked_steps"
LINE = 32
"""Distance of two counters, in 32-bit words."""
TIMED_OUT, ARRIVED, LEFT = 0, LINE, 2 * LINE
"""Words of the synchronization memory: number of timeouts, of groups that arrived, of groups that left."""
SYNC_BYTES = 3 * 4 * LINE
SYNC, TABLE = 0, 1
"""Indices in a linked kernel's addresses: synchronization memory, and launch parameter buffer."""
SHARED = 49152
"""Shared memory of a group without opt-in, in bytes."""


@dataclass(frozen=True)
class GridShape:
    """Shape of a linked kernel. groups: number; threads: of each; shared: most bytes of shared memory of each."""

    groups: int
    threads: int
    shared: int = SHARED


def pointers_of(sync: int, table: int, memory: Sequence[int]) -> list[int]:
    """Addresses of a linked kernel, in order, in one argument: each argument costs 0.5 µs per launch.

    table: launch parameter buffer, 0 without dynamic numbers.
    """
    return [sync, table, *memory]
