"""Cores that this process may use, and pinning of driver threads to them. Needs no OpenCL.

CPU drivers start a thread for each core of the machine. On fewer usable cores (taskset, a container) PoCL's threads
preempt each other while spinning, so the number of threads is limited.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Collection
from pathlib import Path

_QUOTAS = (  # files with CPU quota and period, of cgroups v2 and v1
    ("cpu.max",),
    ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
)


def allowed_cores() -> list[int]:
    """Sorted numbers of the cores in this process's affinity mask; all cores without such masks."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_limit(groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Number of threads that can run at once, by affinity and CPU quota; None if no core is excluded."""
    count = len(allowed_cores())
    if (quota := _quota(groups)) is not None:
        count = min(count, max(1, math.ceil(quota)))
    return count if count < (os.cpu_count() or 1) else None


def _quota(groups: Path) -> float | None:
    """CPU quota of the control group, in cores; None without a quota."""
    for names in _QUOTAS:
        try:
            spent, period = " ".join((groups / name).read_text().strip() for name in names).split()
            return int(spent) / int(period) if int(spent) > 0 else None
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None


def task_ids() -> set[int]:
    """Ids of all threads of this process; empty if the system does not list them."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except (OSError, ValueError):
        return set()


def pin(started: Collection[int], cores: Collection[int]) -> bool:
    """Pin each thread in `started` to one core, if `cores` has as many; returns whether pinning succeeded.

    Schedulers may otherwise leave two workers on one core for seconds, which doubles run times. Python threads are
    ignored.
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
