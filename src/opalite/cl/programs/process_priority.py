"""Scheduling priority (niceness) and core share of child processes."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import time

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # size, policy, flags, niceness, priority, slice in ns, deadline, period
_SLICE_NS = 100_000_000  # the longest time slice that Linux permits
_MAX_NICENESS = 19
_MIN_INTERVAL_S = 0.05  # the core share of a shorter interval means nothing


def set_niceness(pid: int, niceness: int) -> bool:
    """Set the niceness of process `pid` to this process's plus `niceness` (0 to 19). Return whether that succeeded.

    Lowering a niceness needs a right that ordinary users lack by default (RLIMIT_NICE). Since Linux 6.6 a process with
    a higher niceness finishes its time slice of about 3 ms before another process preempts it, unless the other process
    has a shorter slice. So builders get the longest slice, which Linux supports since 6.12.
    """
    try:
        wanted = min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness, _MAX_NICENESS)
        number = _SCHED_SETATTR.get(platform.machine())
        if sys.platform == "linux" and number is not None:
            attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, 0, wanted, 0, _SLICE_NS if niceness else 0, 0, 0)
            ctypes.CDLL(None).syscall(number, pid, attributes, 0)
        if os.getpriority(os.PRIO_PROCESS, pid) != wanted:
            os.setpriority(os.PRIO_PROCESS, pid, wanted)
    except (OSError, AttributeError):
        return False
    return True


class CoreShare:
    """Measures the share of a core that a process gets."""

    def __init__(self, pid: int) -> None:
        self._clock = ~pid << 3 | 2  # Linux's number of the process's CPU-time clock
        self._last: tuple[float, float] | None = None

    def since_last(self) -> float | None:
        """Core share (0 to 1) since the last call; None at the first call, within 50 ms, or without a process clock."""
        try:
            now = time.monotonic(), time.clock_gettime(self._clock)
        except OSError:
            return None
        last = self._last
        if last is not None and now[0] - last[0] < _MIN_INTERVAL_S:
            return None
        self._last = now
        return None if last is None else (now[1] - last[1]) / (now[0] - last[0])
