"""ConcurrentRuns: runs of one session that need not wait for each other, because each has memory of its own.

Runs go in turn while one thread has the session to itself, or nearly so. Once threads have waited for each other, a run
that finds the executable in use, or at another size, goes through a twin of it (`Executable.twin`): the same programs
and weights, other memory. It leaves the turn to others, and takes of the device what `DeviceShare` says: a core, where
the calling thread walks the run's steps itself, or all of it for a millisecond at a time. So nobody waits for more than
that, and no size displaces another's memory. Twins go when nobody wants them any more.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...cl.device.fork_guard import is_child
from ...cl.programs.background_throttle import background_build, report_contention, short_switch_interval
from ...errors import DeviceMemoryError
from ...plan.program import Program
from ..execute.executable import Executable

if TYPE_CHECKING:
    from .run_lock import RunLock

_log = logging.getLogger(__name__)

SHARED_S = 1.0
"""How long threads that have waited for each other are expected to want the device at once again."""

KEPT_S = 10.0
"""How long a twin is kept that nobody uses."""

MOST_TWINS = 2  # of one executable
MOST_BYTES = 256 << 20  # of a twin: where memory is dear, runs go in turn
MISSES = 8
"""Times that a run finds its executable, which is at its size, in use, before it is given a twin: a short run is over
sooner than one is made."""


@dataclass(eq=False)
class Replica:
    """used: when its last run began. thread: whose that was."""

    executable: Executable
    used: float
    thread: int


class ConcurrentRuns:
    """The runs of one session that do not hold its turn, as a Room of the device. Thread-safe.

    runs: how many there were. pace: as Room says. on_drop: told of an executable whose twin goes, and of
    that.
    """

    def __init__(self, lock: RunLock) -> None:
        self._lock = weakref.ref(lock)
        self._changed = threading.Condition()
        self._twins: weakref.WeakKeyDictionary[Executable, list[Replica]] = weakref.WeakKeyDictionary()
        self._until = 0.0
        self._timer: threading.Timer | None = None
        self._misses = 0
        self._running = 0  # runs under way
        self._alone = 0  # who wants nobody beside
        self._is_sliced = False  # whether somebody has all of the device, or is about to
        self._walking = 0  # threads that have a core
        self._line: deque[object] = deque()  # threads that want one
        self._called = 0  # of them, that get one before the next slice
        self._wanted = 0  # slices that are waited for
        self.runs = 0
        self.pace = 2.0
        self.on_drop: weakref.WeakMethod[Callable[[Executable, Executable], None]] | None = None

    # Who goes beside

    def tell(self) -> None:
        """Threads have waited for each other: from now on, for a while, runs go beside each other."""
        lock = self._lock()
        if lock is None or is_child():
            return
        self._until = time.perf_counter() + SHARED_S
        if lock.is_shared:
            return
        with self._changed:
            lock.is_shared = True
            self._misses = 0
            self._watch()

    @contextmanager
    def twin(self, executable: Executable, program: Program) -> Iterator[Executable | None]:
        """Inside, a twin of `executable` is the caller's, who resizes it to `program` if need be; None where the run
        should wait for its turn. To be asked when runs have met, by a thread that does not hold the turn.
        """
        found = self._take(executable, program)
        if found is None:
            yield None
            return
        with background_build(), short_switch_interval():
            try:
                yield found
            finally:
                found.lock.release()
                report_contention()
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def _take(self, executable: Executable, program: Program) -> Executable | None:
        """A twin, locked, and counted as running."""
        with self._changed:
            if self._alone or not _may_have_replica(executable) or not self._leaves_turn(executable, program):
                return None
            twins = self._twins.setdefault(executable, [])
            found = _pick(twins, program)
            if found is None and len(twins) >= MOST_TWINS:
                return None
            self._running += 1
            self.runs += 1
        if found is not None:
            return found
        try:
            with background_build(), short_switch_interval():
                made = executable.make_replica(program)
        except BaseException as e:
            with self._changed:
                self._running -= 1
                self.runs -= 1
                self._changed.notify_all()
            if isinstance(e, DeviceMemoryError):
                _log.info("runs of several threads go in turn: %s", e)
                return None
            raise
        made.lock.acquire()
        with self._changed:
            twins.append(Replica(made, time.perf_counter(), threading.get_ident()))
            self._watch()
        return made

    def _leaves_turn(self, executable: Executable, program: Program) -> bool:
        """Whether a run should not wait for its turn. One that has its memory there and is short should: what it waits
        for is as short, or a slice."""
        is_busy = self._has_turn
        if is_busy or self._running:
            self._until = time.perf_counter() + SHARED_S
        if executable.program is not program or not executable.runs_on_host_thread:
            return True
        if not is_busy or self._is_sliced:
            return False
        self._misses += 1
        return self._misses > MISSES

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        """Inside, there are no such runs."""
        with self._changed:
            self._alone += 1
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1

    # Room

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """See Room. Those that wait for a core get one before the next slice."""
        lock = self._lock()
        assert lock is not None, "held by its runs"
        with self._changed:
            self._wanted += 1
            try:
                self._changed.wait_for(lambda: not (self._is_sliced or self._called or self._walking))
                self._is_sliced = True
            finally:
                self._wanted -= 1
                self._changed.notify_all()
        try:
            lock.acquire_soon()
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._changed:
                self._is_sliced = False
                self._called = len(self._line)
                self._changed.notify_all()

    @contextmanager
    def reserve_core(self, cores: int) -> Iterator[None]:
        """See Room. One core is left to the run whose turn it is."""
        me = object()
        with self._changed:
            self._line.append(me)
            try:
                self._changed.wait_for(lambda: self._line[0] is me and self._spares_core(cores))
                self._walking += 1
            finally:
                self._line.remove(me)
                self._called = max(0, self._called - 1)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._walking -= 1
                self._changed.notify_all()

    def _spares_core(self, cores: int) -> bool:
        """Whether one more thread may walk."""
        if self._is_sliced or (self._wanted and not self._called):
            return False
        return self._walking < max(1, cores - self._has_turn)

    @property
    def _has_turn(self) -> bool:
        """Whether somebody has the turn."""
        lock = self._lock()
        if lock is None or not lock.acquire_at_once(False):
            return True
        lock.release()
        return False

    # Twins

    @property
    def executables(self) -> list[Executable]:
        """The twins that there are."""
        with self._changed:
            return [t.executable for twins in self._twins.values() for t in twins]

    def _watch(self) -> None:
        """See to it that twins go, and the turn is enough, when threads have not met for long."""
        if self._timer is None:
            self._timer = threading.Timer(SHARED_S, _look, [weakref.ref(self)])
            self._timer.daemon = True
            self._timer.start()

    def clear(self) -> None:
        """Drop all twins that no run is going through."""
        self.look(-1.0)

    def look(self, kept_s: float = KEPT_S) -> None:
        """Drop twins that nobody has used for so long, and leave it at turns if threads have not met for long."""
        now, lock = time.perf_counter(), self._lock()
        dropped: list[tuple[Executable, Executable]] = []
        with self._changed:
            if threading.current_thread() is self._timer:
                self._timer = None
            if lock is not None and now > self._until:
                lock.is_shared = False
            for executable, twins in list(self._twins.items()):
                idle = [t for t in twins if now - t.used > kept_s and t.executable.lock.acquire(blocking=False)]
                dropped += [(executable, t.executable) for t in idle]
                left = [t for t in twins if t not in idle]
                if left:
                    twins[:] = left
                else:
                    del self._twins[executable]
            if lock is not None and (lock.is_shared or self._twins):
                self._watch()
        told = None if self.on_drop is None else self.on_drop()
        for executable, twin in dropped:
            if told is not None:
                told(executable, twin)
            twin.release()
            twin.lock.release()


def _look(beside_of: weakref.ref[ConcurrentRuns]) -> None:
    beside = beside_of()
    if beside is not None and not is_child():
        beside.look()


def _may_have_replica(executable: Executable) -> bool:
    return (
        executable.tier == "optimized"
        and not executable.is_released
        and not executable.is_random
        and executable.memory.nbytes <= MOST_BYTES
    )


def _pick(twins: list[Replica], program: Program) -> Executable | None:
    """One that is free, locked: at that size, else the caller's last one, else that of longest ago."""
    me = threading.get_ident()
    for twin in sorted(twins, key=lambda t: (t.executable.program is not program, t.thread != me, t.used)):
        if twin.executable.lock.acquire(blocking=False):
            twin.used, twin.thread = time.perf_counter(), me
            return twin.executable
    return None
