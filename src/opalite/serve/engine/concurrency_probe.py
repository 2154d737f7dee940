"""best_concurrency: measures at warm-up how many concurrent runs of a session give the highest throughput.

A run on several cores synchronises at each layer, and waits for a core that reads requests. Two runs on a core each
need no such synchronisation: MobileNetV2 on two cores gives 1.1 times as many answers a second. A single request still
uses all cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

_SHORTEST_S, _LONGEST_S = 2e-4, 0.012
"""Shorter runs end before another request arrives; longer ones lose more by time slicing than they gain."""
_FIRST_S, _S = 0.2, 0.5  # warm-up of the threads, measurement
_WINDOW_S = 0.2  # the best window counts, since the machine has slow phases
_WORTH = 1.03
_MOST = 3


def best_concurrency(run: Callable[[], object], cores: int) -> int:
    """The number of threads with the highest rate of `run`; 1 unless more are clearly faster."""
    alone = min(_seconds(run) for _ in range(5))
    if cores < 2 or not _SHORTEST_S < alone < _LONGEST_S:
        return 1
    best, most = 1, _rate(run, 1)
    for count in range(2, min(cores, _MOST) + 1):
        rate = _rate(run, count)
        if rate > _WORTH * most:
            best, most = count, rate
    return best


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _rate(run: Callable[[], object], count: int) -> float:
    """Runs per second of `count` threads, in the best window."""
    started = time.perf_counter() + (_FIRST_S if count > 1 else 0.0)
    ends: list[float] = []

    def repeat() -> None:
        while (now := time.perf_counter()) < started + _S:
            run()
            ends.append(now)

    threads = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _best_rate(sorted(t for t in ends if t >= started))


def _best_rate(times: Sequence[float]) -> float:
    """The highest rate of events in a window, for sorted times; 0 for fewer than two events."""
    best, first = 0.0, 0
    for last, end in enumerate(times):
        while end - times[first] > _WINDOW_S:
            first += 1
        if last > first and (end - times[first] > _WINDOW_S / 2):
            best = max(best, (last - first) / (end - times[first]))
    return best
