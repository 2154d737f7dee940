"""Which cores this process may use, and threads of a driver that stay on one of them each. Needs no OpenCL.

Drivers for CPUs start a thread for each core of the machine, whatever the process may use of it: PoCL's two workers on
one core (taskset, a container) take each other's time, and spin while the other has it. So they are told how many.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Collection
from pathlib import Path

_QUOTAS = (  # files with the processor time that a container may take, and the period of both versions of cgroups
    ("cpu.max",),
    ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
)


def allowed_cores() -> list[int]:
    """The numbers of the cores that this process may run on (its affinity), in order; all where the system has none."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_limit(groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """How many threads can compute at once, by affinity and a container's quota; None if as many as cores exist."""
    count = len(allowed_cores())
    if (quota := _quota(groups)) is not None:
        count = min(count, max(1, math.ceil(quota)))
    return count if count < (os.cpu_count() or 1) else None


def _quota(groups: Path) -> float | None:
    """Processor time per time, in cores, that the control group of this process may take; None if any."""
    for names in _QUOTAS:
        try:
            spent, period = " ".join((groups / name).read_text().strip() for name in names).split()
            return int(spent) / int(period) if int(spent) > 0 else None
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None


def task_ids() -> set[int]:
    """The numbers of this process's threads, those of drivers included; empty where the system does not tell."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except (OSError, ValueError):
        return set()


def pin(started: Collection[int], cores: Collection[int]) -> bool:
    """Leave each of the threads `started` on a core of its own, if there are as many as `cores`; whether that is so.

    Systems were seen to leave two workers on one core for seconds, at twice the time. Threads of Python's do not count.
    """
    ours = {thread.native_id for thread in threading.enumerate()}
    tasks = sorted(set(started) - ours)
    if len(tasks) != len(cores) or not hasattr(os, "sched_setaffinity"):
        return False
    try:
        for task, core in zip(tasks, sorted(cores), strict=True):
            os.sched_setaffinity(task, {core})
    except OSError:
        return False
    return True
