"""Times launches by device events: repeats them and takes the minimum; the caller warms up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..cl.queue.event_times import read_times, wait_for
from ..cl.queue.prepared_launch import PreparedLaunch
from ..ir.device.device_family import FEW_EVENTS, TIMER_OUTLIERS
from ..ir.device.device_info import DeviceInfo

SLICE_S = 0.012  # total duration of a trial, about
FEWEST, MOST = 3, 40  # runs of a trial
HOPELESS = 2.0  # a trial whose first run takes so many times the best seconds is not repeated
EVENTS = 8  # on Mali, the most outstanding events


def time_launches(
    launches: Sequence[PreparedLaunch],
    queue: Any,
    device: DeviceInfo,
    *,
    best_s: float = float("inf"),
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Least device seconds of one run of all `launches`, which have run once; `best_s`: the time to beat.

    A run includes the launch overhead between launches. If a driver's events have no times, the host clock is used.
    """
    if not launches:
        return 0.0
    least, once = _timed_runs(launches, queue, device, 1, clock)
    if least > HOPELESS * best_s:
        return least
    runs = min(MOST, max(FEWEST, int(SLICE_S / max(once, 1e-7))))
    again, _ = _timed_runs(launches, queue, device, runs, clock)
    return min(least, again)


def _timed_runs(
    launches: Sequence[PreparedLaunch], queue: Any, device: DeviceInfo, runs: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """(least device seconds of a run, mean host seconds of a run)."""
    started = clock()
    events = _enqueue([*launches] * runs, queue, device)
    wait_for(events[-1], device.name)
    host_s = (clock() - started) / runs
    count = len(launches)
    seconds = [read_times(e, device.name).seconds for e in events]
    sums = [sum(seconds[i : i + count]) for i in range(0, len(seconds), count)]
    least = min(sums)
    return (least + (count - 1) * device.launch_s if least > 0 else host_s), host_s


def _enqueue(launches: Sequence[PreparedLaunch], queue: Any, device: DeviceInfo) -> list[Any]:
    """Events of the launches. Mali leaks memory with many outstanding events; Adreno 3xx times better one by one."""
    events: list[Any] = []
    for i, launch in enumerate(launches):
        events.append(launch.enqueue(queue))
        if FEW_EVENTS in device.quirks and i % EVENTS == EVENTS - 1:
            wait_for(events[i - EVENTS + 1], device.name)
        if TIMER_OUTLIERS in device.quirks:
            wait_for(events[i], device.name)
    return events
