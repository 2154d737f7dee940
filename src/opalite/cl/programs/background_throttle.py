"""Throttling of background work (import, planning, compilation) so that concurrent runs keep their latency.

Background work delays a run in three ways:

- GIL. After each OpenCL call a thread has to get the GIL back. A planning thread releases it only after
  `sys.getswitchinterval()`, by default 5 ms: several runs of a small model. `short_switch_interval` lowers the interval
  to SWITCH_INTERVAL_S.
- Garbage collection. The many short-lived objects of planning start full collections, which hold the GIL for 40 to
  60 ms (measured). `background_planning` turns the collector off. Afterwards the new objects are moved to the oldest
  generation, because collecting them at once takes 10 to 20 ms.
- Cores. A megakernel run waits 3 ms and more for a worker thread that lost its core. `is_contended` lets
  pocl/megakernel/host_thread_loop.py run without workers then.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")
SWITCH_INTERVAL_S = 2e-4
YIELD_EVERY_S = 5e-4
"""Time after which a thread that calls a driver in a loop releases the GIL."""

_YIELD_S = 1e-5
CONTENTION_S = 0.02
"""Time for which a reported contention counts."""

_contended_until = 0.0


class _SharedScope(AbstractContextManager[None]):
    """Threads inside share a setting: the first to enter calls `begin`, the last to leave `end` with its result."""

    def __init__(self, begin: Callable[[], T], end: Callable[[T], object]) -> None:
        self._begin, self._end = begin, end
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == 1:
                self._before = self._begin()

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self.count -= 1
            if self.count == 0:
                self._end(self._before)


_MIN_PROMOTED, _MAX_PROMOTED = 5_000, 500_000  # objects at once, and between two full collections
_promoted = [0, 0]  # objects promoted since the last full collection, and that collection's number


def _promote_new_objects() -> None:
    """Move objects that were made while the collector was off to the oldest generation.

    Freezing and unfreezing does that. Nothing is promoted while other code has frozen objects. After _MAX_PROMOTED
    objects a full collection has to come first: it frees the garbage among them.
    """
    young, full = gc.get_count()[0], gc.get_stats()[2]["collections"]
    if full != _promoted[1]:
        _promoted[:] = 0, full
    if young < _MIN_PROMOTED or _promoted[0] + young > _MAX_PROMOTED or gc.get_freeze_count():
        return
    _promoted[0] += young
    gc.freeze()
    gc.unfreeze()


def _shorten_switch_interval() -> float:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL_S))
    return before


def _restore_switch_interval(before: float) -> None:
    if abs(sys.getswitchinterval() - min(before, SWITCH_INTERVAL_S)) < 1e-6:
        sys.setswitchinterval(before)


def _stop_collector() -> bool:
    was_on = gc.isenabled()
    gc.disable()
    return was_on


def _restart_collector(was_on: bool) -> None:
    if was_on:
        _promote_new_objects()
        gc.enable()


_interval = _SharedScope(_shorten_switch_interval, _restore_switch_interval)
_collector = _SharedScope(_stop_collector, _restart_collector)
# At its end a thread is about to run, and will soon plan again.
_work = _SharedScope(lambda: None, lambda _: report_contention())


def yield_interpreter(since: float) -> float:
    """Release the GIL if the last release, at `since` (time.perf_counter), is over YIELD_EVERY_S ago.

    Returns the time of the last release. For loops of short driver calls: each call releases the GIL for microseconds,
    too short for a waiting thread to wake up, but long enough to restart its waiting time (up to 6 ms measured).
    """
    now = time.perf_counter()
    if now - since < YIELD_EVERY_S:
        return since
    time.sleep(_YIELD_S)
    return time.perf_counter()


def short_switch_interval() -> AbstractContextManager[None]:
    """Context in which a thread that waits for the GIL gets it after SWITCH_INTERVAL_S; no cost without contention.

    The switch interval is process-wide. A shorter interval stays, as does an interval that other code sets meanwhile.
    """
    return _interval


@contextmanager
def background_planning() -> Iterator[None]:
    """Context of import or planning: short switch interval, contended cores, no automatic garbage collection."""
    with _interval, _work, _collector:
        yield


def background_build() -> AbstractContextManager[None]:
    """Context in which worker processes compile: cores count as contended."""
    return _work


def report_contention() -> None:
    """Record that several threads want cores: a thread waited for another thread's run, or worked during that run."""
    global _contended_until
    _contended_until = time.perf_counter() + CONTENTION_S


def is_contended(now: float) -> bool:
    """Return whether background work or another thread wants the cores at `now` (time.perf_counter)."""
    return _work.count > 0 or now < _contended_until
