"""At once: how many runs of one session go on at the same time in a worker, tried when it warms up.

A run that several cores share waits at each layer for the slowest of them, and a core that reads requests is slow for
that moment. Two runs that have a core each do not wait for each other: MobileNetV2 on two cores gives 1.1 times as many
answers a second so, and more where the server works beside it. A request that comes alone has all cores as before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

_SHORTEST_S, _LONGEST_S = 2e-4, 0.012
"""Runs that take less are over before another request comes; longer ones lose by turns more than they gain."""
_FIRST_S, _S = 0.2, 0.5  # until threads have found their ways, and after that
_WINDOW_S = 0.2  # stretches beside a slow moment of the machine do not count
_WORTH = 1.03
_MOST = 3


def runs_at_once(run: Callable[[], object], cores: int) -> int:
    """How many threads that call `run` again and again are done most often; 1 unless more are clearly faster."""
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
    """Runs a second in the best window."""
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
    """Of events at these times, in order: how many a second, in the window that has most; 0 for fewer than two."""
    best, first = 0.0, 0
    for last, end in enumerate(times):
        while end - times[first] > _WINDOW_S:
            first += 1
        if last > first and (end - times[first] > _WINDOW_S / 2):
            best = max(best, (last - first) / (end - times[first]))
    return best
