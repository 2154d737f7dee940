"""The priority of a process that builds for this one: lowered at will, and raised again where the system permits."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import time

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # size, policy, flags, niceness, priority, slice in ns, deadline, period
_SLICE_NS = 100_000_000  # the longest
_MOST = 19
_SPAN_S = 0.05
"""Shorter spans tell nothing of the share of a core."""


def set_niceness(pid: int, niceness: int) -> bool:
    """Let the process `pid` be nicer than this one by `niceness` (0 to 19); whether it is now.

    To lower it again takes a right that ordinary users lack by default (RLIMIT_NICE).

    A nicer process gives up its core as soon as another one wakes up. Linux from 6.6 on lets it finish its slice of
    about 3 ms first, which is several runs of a small model, unless who wakes up asked for a shorter slice. From 6.12
    on a process may have a longer one.
    """
    try:
        wanted = min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness, _MOST)
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
    """How much of a core a process gets."""

    def __init__(self, pid: int) -> None:
        self._clock = ~pid << 3 | 2  # of a process's processor time, as Linux numbers clocks
        self._seen: tuple[float, float] | None = None

    def since_last(self) -> float | None:
        """The part of a core that it got since this was asked last; None at first, too soon, and where the
        system does not tell."""
        try:
            now = time.monotonic(), time.clock_gettime(self._clock)
        except OSError:
            return None
        seen = self._seen
        if seen is not None and now[0] - seen[0] < _SPAN_S:
            return None
        self._seen = now
        return None if seen is None else (now[1] - seen[1]) / (now[0] - seen[0])
