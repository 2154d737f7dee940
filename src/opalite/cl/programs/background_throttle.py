"""What a process does beside running models - importing, planning, building - and the room that it leaves for runs.

Three things make a run wait that has its memory and its programs:

- The interpreter. A thread that wants it back, as one does after each call of OpenCL's, waits until the thread that has
  it gives it away, which one that plans does when it was asked to for `sys.getswitchinterval()` seconds: 5 ms, several
  times what a small model takes. Beside runs that is TURN_S.
- The garbage collector. The many objects that planning makes for a moment count as old ones to it, so that it looks
  through all objects of the process, and nobody has the interpreter meanwhile: measured, 40 to 60 ms. And where it was
  off meanwhile, it looks through all that were made, 10 to 20 ms, as soon as it is on.
- The cores. A run whose steps several threads share waits for a thread whose core was given to another one, for 3 ms
  and more at a time. `is_contended` tells who shares (pocl/megakernel/host_thread_loop.py) that others want the cores.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

TURN_S = 2e-4
PAUSE_S = 5e-4
"""How long a thread that calls a driver again and again goes on without a pause."""

_NAP_S = 1e-5
TURNS_S = 0.02
"""How long threads that took turns are expected to go on with it."""

_taken_turns_until = 0.0


class _Users(AbstractContextManager[None]):
    """How many threads are inside; the first and the last change something of the process's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1
            if self.count == 1:
                self._begin()

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self.count -= 1
            if self.count == 0:
                self._end()

    def _begin(self) -> None:
        """Nothing to change."""

    def _end(self) -> None:
        """Nothing to put back."""


_MANY, _MOST = 5_000, 500_000
_unseen = [0, 0]  # objects that grew old unseen since the last full collection, and the number of that


def _grow_old() -> None:
    """Count what was made while the collector was off among the old objects, which it looks at more rarely: it would
    look at all of them at once, during which nobody has the interpreter.

    Frozen objects are old ones when they thaw. Not where somebody else has frozen some, nor for ever without a full
    collection, which finds those among them that are garbage.
    """
    young, full = gc.get_count()[0], gc.get_stats()[2]["collections"]
    if full != _unseen[1]:
        _unseen[:] = 0, full
    if young < _MANY or _unseen[0] + young > _MOST or gc.get_freeze_count():
        return
    _unseen[0] += young
    gc.freeze()
    gc.unfreeze()


class _ShortTurns(_Users):
    _before = 0.0

    def _begin(self) -> None:
        self._before = sys.getswitchinterval()
        sys.setswitchinterval(min(self._before, TURN_S))

    def _end(self) -> None:
        if abs(sys.getswitchinterval() - min(self._before, TURN_S)) < 1e-6:
            sys.setswitchinterval(self._before)


class _NoCollector(_Users):
    _was_on = False

    def _begin(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def _end(self) -> None:
        if self._was_on:
            _grow_old()
            gc.enable()


class _Crowds(_Users):
    def _end(self) -> None:
        report_contention()  # who planned is about to run, and plans again soon


_turns, _collector, _crowds = _ShortTurns(), _NoCollector(), _Crowds()


def yield_interpreter(since: float) -> float:
    """Let another thread have the interpreter if the last pause, at `since` (of time.perf_counter), was long ago; when
    the last one was.

    For loops of short calls to a driver. Each gives the interpreter away for microseconds, in which nobody else wakes
    up; yet who wants it begins to wait anew, and never asks for it: measured, for up to 6 ms.
    """
    now = time.perf_counter()
    if now - since < PAUSE_S:
        return since
    time.sleep(_NAP_S)
    return time.perf_counter()


def short_switch_interval() -> AbstractContextManager[None]:
    """Inside, whoever waits for the interpreter gets it after TURN_S. It costs a thread that nobody waits for nothing.

    The interval is the process's: one that is shorter already stays, and one that somebody else sets meanwhile, too.
    """
    return _turns


@contextmanager
def background_planning() -> Iterator[None]:
    """Inside, where a thread imports or plans for milliseconds or more: short turns, cores that runs make room on, and
    no garbage collection unless somebody asks for it; what planning makes goes without one.
    """
    with _turns, _crowds, _collector:
        yield


def background_build() -> AbstractContextManager[None]:
    """Inside, where other processes compile for this one: cores that runs make room on."""
    return _crowds


def report_contention() -> None:
    """A thread had to wait for another one's run, or did something beside it: several are at work, each with a core
    that it had a moment ago."""
    global _taken_turns_until
    _taken_turns_until = time.perf_counter() + TURNS_S


def is_contended(now: float) -> bool:
    """Whether something beside the run that begins `now` (of time.perf_counter) wants the cores."""
    return _crowds.count > 0 or now < _taken_turns_until
