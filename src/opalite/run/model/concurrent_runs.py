"""ConcurrentRuns: runs of one session at the same time, by replicas of an executable.

A replica shares programs and weights, and has its own memory (`Executable.make_replica`). Runs hold the run lock while
one thread uses the session. After threads have waited for each other, a run takes a replica if the executable is in use
or is set for another size. On a CPU it gets a share of the device (`DeviceShare`): one core if the calling thread
computes itself, else the whole device in slices of 0.7 ms. So no run waits for more than a slice, and no size replaces
another's arguments. Other devices take runs in turn, by their queue, and one run's transfers and host work overlap with
another's launches. Replicas that are not used are released.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...cl.device.fork_guard import is_child
from ...cl.programs.background_throttle import background_build, report_contention, short_switch_interval
from ...errors import DeviceMemoryError
from ...lazy_dataclass import dataclass
from ...plan.program import Program
from ..execute.executable import Executable

if TYPE_CHECKING:
    from .run_lock import RunLock

_log = logging.getLogger(__name__)

SHARED_S = 1.0
"""Seconds after a wait of threads for each other in which runs ask for replicas."""

KEPT_S = 10.0
"""Seconds that an unused replica is kept."""

MAX_REPLICAS = 2  # of one executable
MAX_REPLICA_BYTES = 256 << 20
"""Memory of the largest executable that gets replicas, on devices of up to 16 GiB; more on larger ones."""
MAX_MISSES = 8
"""Times that a run finds its executable busy at the right size before a replica is made: a short run ends sooner."""


@dataclass(eq=False)
class Replica:
    """used: start of its last run. thread: of that run."""

    executable: Executable
    used: float
    thread: int


class ConcurrentRuns:
    """Runs of one session without the run lock; arbitrates their shares of the device. Thread-safe.

    runs: their number. pace: see `DeviceShare`. on_drop: called with an executable and its replica before that is
    released.
    """

    def __init__(self, lock: RunLock) -> None:
        self._lock = weakref.ref(lock)
        self._changed = threading.Condition()
        self._replicas: weakref.WeakKeyDictionary[Executable, list[Replica]] = weakref.WeakKeyDictionary()
        self._shared_until = 0.0
        self._timer: threading.Timer | None = None
        self._misses = 0
        self._running = 0  # runs under way
        self._pauses = 0  # callers of `paused`
        self._is_sliced = False  # one thread has the whole device, or is about to
        self._reserved_cores = 0
        self._core_queue: deque[object] = deque()  # threads that wait for a core
        self._cores_due = 0  # waiting threads that get a core before the next slice
        self._waiting_slices = 0
        self.runs = 0
        self.pace = 2.0
        self.on_drop: weakref.WeakMethod[Callable[[Executable, Executable], None]] | None = None

    # Leases

    def note_contention(self) -> None:
        """Have runs ask for replicas for SHARED_S, because threads have waited for each other."""
        lock = self._lock()
        if lock is None or is_child():
            return
        self._shared_until = time.perf_counter() + SHARED_S
        if lock.is_shared:
            return
        with self._changed:
            lock.is_shared = True
            self._misses = 0
            self._start_timer()

    @contextmanager
    def lease_replica(self, executable: Executable, program: Program) -> Iterator[Executable | None]:
        """A `with` block that leases a replica of `executable`; None if the run should wait for the run lock.

        The calling thread does not hold the run lock. The replica may be set for another size than `program`.
        """
        found = self._find_or_make(executable, program)
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

    def _find_or_make(self, executable: Executable, program: Program) -> Executable | None:
        """A locked replica, counted as running."""
        with self._changed:
            if self._pauses or not _may_have_replica(executable) or not self._needs_replica(executable, program):
                return None
            replicas = self._replicas.setdefault(executable, [])
            found = _pick(replicas, program)
            if found is None and len(replicas) >= MAX_REPLICAS:
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
                _log.info("runs of several threads wait for each other: %s", e)
                return None
            raise
        made.lock.acquire()
        with self._changed:
            replicas.append(Replica(made, time.perf_counter(), threading.get_ident()))
            self._start_timer()
        return made

    def _needs_replica(self, executable: Executable, program: Program) -> bool:
        """Whether waiting for the run lock would cost more: not for a short run whose arguments are set."""
        is_busy = self._is_lock_held
        if is_busy or self._running:
            self._shared_until = time.perf_counter() + SHARED_S
        if executable.program is not program:
            return True
        if not executable.rt.info.on_host:
            return is_busy  # its queue takes the runs of all threads in turn, and one may use the executable itself
        if not executable.runs_on_host_thread:
            return True
        if not is_busy or self._is_sliced:
            return False
        self._misses += 1
        return self._misses > MAX_MISSES

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A `with` block without concurrent runs."""
        with self._changed:
            self._pauses += 1
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1

    # DeviceShare

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """See DeviceShare. Threads that wait for a core get one before the next slice."""
        lock = self._lock()
        assert lock is not None, "held by its runs"
        with self._changed:
            self._waiting_slices += 1
            try:
                self._changed.wait_for(lambda: not (self._is_sliced or self._cores_due or self._reserved_cores))
                self._is_sliced = True
            finally:
                self._waiting_slices -= 1
                self._changed.notify_all()
        try:
            lock.acquire_for_slice()
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._changed:
                self._is_sliced = False
                self._cores_due = len(self._core_queue)
                self._changed.notify_all()

    @contextmanager
    def reserve_core(self, cores: int) -> Iterator[None]:
        """See DeviceShare. One core is left to the run that holds the run lock."""
        me = object()
        with self._changed:
            self._core_queue.append(me)
            try:
                self._changed.wait_for(lambda: self._core_queue[0] is me and self._has_free_core(cores))
                self._reserved_cores += 1
            finally:
                self._core_queue.remove(me)
                self._cores_due = max(0, self._cores_due - 1)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._reserved_cores -= 1
                self._changed.notify_all()

    def _has_free_core(self, cores: int) -> bool:
        if self._is_sliced or (self._waiting_slices and not self._cores_due):
            return False
        return self._reserved_cores < max(1, cores - self._is_lock_held)

    @property
    def _is_lock_held(self) -> bool:
        """Whether any thread holds the run lock."""
        lock = self._lock()
        if lock is None or not lock.try_acquire(False):
            return True
        lock.release()
        return False

    # Replicas

    @property
    def executables(self) -> list[Executable]:
        """All replicas."""
        with self._changed:
            return [r.executable for replicas in self._replicas.values() for r in replicas]

    def _start_timer(self) -> None:
        """Schedule `evict_idle` in one second, unless a call is scheduled."""
        if self._timer is None:
            self._timer = threading.Timer(SHARED_S, _evict_idle, [weakref.ref(self)])
            self._timer.daemon = True
            self._timer.start()

    def clear(self) -> None:
        """Release all replicas that no run uses."""
        self.evict_idle(-1.0)

    def evict_idle(self, kept_s: float = KEPT_S) -> None:
        """Release replicas unused for `kept_s` seconds; end sharing if no thread waited for another in SHARED_S."""
        now, lock = time.perf_counter(), self._lock()
        dropped: list[tuple[Executable, Executable]] = []
        with self._changed:
            if threading.current_thread() is self._timer:
                self._timer = None
            if lock is not None and now > self._shared_until:
                lock.is_shared = False
            for executable, replicas in list(self._replicas.items()):
                idle = [r for r in replicas if now - r.used > kept_s and r.executable.lock.acquire(blocking=False)]
                dropped += [(executable, r.executable) for r in idle]
                left = [r for r in replicas if r not in idle]
                if left:
                    replicas[:] = left
                else:
                    del self._replicas[executable]
            if lock is not None and (lock.is_shared or self._replicas):
                self._start_timer()
        on_drop = None if self.on_drop is None else self.on_drop()
        for executable, replica in dropped:
            if on_drop is not None:
                on_drop(executable, replica)
            replica.release()
            replica.lock.release()


def _evict_idle(runs_of: weakref.ref[ConcurrentRuns]) -> None:
    runs = runs_of()
    if runs is not None and not is_child():
        runs.evict_idle()


def _may_have_replica(executable: Executable) -> bool:
    return (
        executable.tier == "optimized"
        and not executable.is_released
        and not executable.is_random
        and executable.memory.nbytes <= max(MAX_REPLICA_BYTES, executable.rt.info.global_mem >> 6)
    )


def _pick(replicas: list[Replica], program: Program) -> Executable | None:
    """A free replica, locked: set for `program`, else the thread's last one, else the one unused for longest."""
    me = threading.get_ident()
    for replica in sorted(replicas, key=lambda r: (r.executable.program is not program, r.thread != me, r.used)):
        if replica.executable.lock.acquire(blocking=False):
            replica.used, replica.thread = time.perf_counter(), me
            return replica.executable
    return None
