"""BuildPool: compiles programs in worker processes, for drivers that compile one program at a time in a process (PoCL).

Builds never raise here. The caller compiles every program that the workers do not deliver: a worker may fail to start,
be killed or hang, and a program may not compile. Programs that crash the compiler are reported separately, because such
programs would crash the caller too.
"""

from __future__ import annotations

import os
import selectors
import shutil
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Condition

from ...errors import DeviceError
from ...lazy_dataclass import dataclass
from ...pocl.cpu_workarounds import make_build_folder
from ...pocl.process_limits import BUILD_FILES, check_files
from ...pocl.provide_linker import prepare_linker
from .background_throttle import background_build
from .build_worker import READY
from .worker_process import WorkerProcess

START_S = 30.0  # timeout until a worker is ready
BUILD_S = 60.0  # timeout of one program
_BACKGROUND_FACTOR = 10  # timeouts are so much longer in the background
_PROGRAMS_PER_WORKER = 2  # a worker takes as long to start as two programs to compile
_POLL_S = 0.1  # interval at which stop requests and priorities are checked

Spec = tuple[str, str]
"""Source text and build options."""


@dataclass(frozen=True)
class Lane:
    """A kind of builds, which together use at most `limit` workers. is_background: timeouts are ten times as long."""

    name: str
    limit: int
    is_background: bool = False


class BuildPool:
    """Processes that build for the device at `index` ('platform:device') with `version`, one build at a time each.

    Processes start at the first `start` or `build`. They end after IDLE_S without work, at `close` or with the parent.
    """

    def __init__(self, index: str, version: str) -> None:
        self._index = index
        self._version = version
        self._workers: list[WorkerProcess] = []
        self._changed = Condition()  # of the workers and their lanes
        self._waiters = 0
        self._folder = ""

    @contextmanager
    def expedite_builds(self) -> Iterator[None]:
        """Context in which a caller waits for background builds: workers run at normal priority until their build ends.

        A starved worker whose priority cannot be raised is replaced by a new one, which builds its program again.
        """
        with self._changed:
            self._waiters += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiters -= 1

    @property
    def is_expedited(self) -> bool:
        """Return whether a caller waits for background builds."""
        return self._waiters > 0

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [w.process.pid for w in list(self._workers) if w.is_alive]

    @property
    def has_idle_worker(self) -> bool:
        """Return whether a worker of normal priority waits for a build."""
        return any(w.is_alive and not w.lane and not w.niceness for w in list(self._workers))

    def start(self, lane: Lane, count: int, niceness: int = 0) -> None:
        """Start workers until `count` are idle or in this lane."""
        with self._changed:
            self._clean_up()
            here = sum(w.lane in ("", lane.name) for w in self._workers)
            self._start(count - here, niceness)

    def build(
        self,
        lane: Lane,
        specs: Sequence[Spec],
        *,
        niceness: int = 0,
        waits: bool = False,
        crashed: dict[int, str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (number in `specs`, binary) for each (source, options) that was built; failures are left out.

        niceness: of the workers, relative to this process. Yields nothing while other threads use the lane's workers,
        unless `waits`. crashed: receives the programs that crashed the compiler, with a description of each crash.
        stop: called ten times a second; True ends the build.
        """
        waiting = dict(enumerate(specs))
        while waiting:
            count = max(1, len(waiting) // _PROGRAMS_PER_WORKER)
            scheduler = _Scheduler(self, lane, waiting, stop)
            scheduler.workers = self._lease(lane, count, niceness, waits, stop)
            try:
                with background_build():
                    yield from scheduler.run()
            finally:
                self._release(scheduler.workers)
            if crashed is not None:
                crashed.update(scheduler.crashed)
            if not scheduler.crashed or scheduler.is_stopped:
                return
            waiting = {number: specs[number] for number in scheduler.unstarted}

    def replace(self, worker: WorkerProcess) -> list[WorkerProcess]:
        """Start a worker of normal priority in place of a stopped one; returns it, or [] if it cannot start."""
        with self._changed:
            self._workers.remove(worker)
            made = self._start(1, 0)
            for new in made:
                new.lane = worker.lane
        return made

    def close(self) -> None:
        """Stop the workers. `start` and `build` start new ones."""
        with self._changed:
            _stop_all(self._workers)
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = ""

    def _lease(
        self, lane: Lane, count: int, niceness: int, waits: bool, stop: Callable[[], bool] | None
    ) -> list[WorkerProcess]:
        """Up to `count` workers for one build: idle ones, then new ones.

        [] if other builds use the lane's workers, unless `waits`.
        """
        with self._changed:
            while not (stop is not None and stop()):
                room = lane.limit - sum(w.lane == lane.name for w in self._workers)
                if room <= 0 and waits:
                    self._changed.wait(_POLL_S)
                    continue
                self._clean_up()
                wanted, found = min(room, count), list[WorkerProcess]()
                niceness = 0 if self.is_expedited else niceness
                for worker in [w for w in self._workers if not w.lane]:
                    # Background builds can use a worker whose priority cannot be raised.
                    if len(found) < wanted and (worker.set_niceness(niceness) or lane.is_background):
                        found.append(worker)
                found += self._start(wanted - len(found), niceness)
                for worker in found:
                    worker.lane = lane.name
                return found
        return []

    def _release(self, workers: Sequence[WorkerProcess]) -> None:
        with self._changed:
            for worker in workers:
                if worker.task is not None:
                    worker.stop()
                worker.lane = ""
            self._changed.notify_all()

    def _start(self, count: int, niceness: int) -> list[WorkerProcess]:
        """Start up to `count` workers; returns those that the system allows."""
        made: list[WorkerProcess] = []
        if count <= 0 or not sys.executable:
            return made
        with suppress(OSError, DeviceError):
            prepare_linker()
            # A worker would crash without free files; the caller, who then builds, raises the error.
            check_files(BUILD_FILES, "compiling a program with PoCL")
            if not self._folder:
                self._folder = make_build_folder()
                weakref.finalize(self, _remove_all, self._workers, self._folder, os.getpid())
            while len(made) < count:
                worker = WorkerProcess(self._command(), self._folder)
                worker.set_niceness(niceness)
                self._workers.append(worker)
                made.append(worker)
        return made

    def _clean_up(self) -> None:
        """Forget ended workers, and all if their folder was removed: a running worker cannot change its folder."""
        is_gone = self._folder and not os.path.isdir(self._folder) and not any(w.lane for w in self._workers)
        for worker in [w for w in self._workers if not w.lane and (is_gone or not w.is_alive)]:
            worker.stop()
            self._workers.remove(worker)
        if is_gone:
            self._folder = ""

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", f"{__package__}.build_worker", self._index, self._version]


class _Scheduler:
    """Assigns programs to the workers of one build and collects the binaries, in one thread."""

    def __init__(self, pool: BuildPool, lane: Lane, specs: Mapping[int, Spec], stop: Callable[[], bool] | None) -> None:
        self._pool = pool
        self._stop = stop
        self._factor = _BACKGROUND_FACTOR if lane.is_background else 1
        self.is_stopped = False
        self.workers: list[WorkerProcess] = []  # to be released
        self.crashed: dict[int, str] = {}  # programs that crashed the compiler, and how
        self._specs = specs
        self.unstarted = deque(specs)  # programs that no worker has started
        self._open: set[WorkerProcess] = set()
        self._selector = selectors.DefaultSelector()

    def run(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, binary) of built programs until all are done or no worker is left."""
        with self._selector:
            for worker in self.workers:
                self._add(worker)
            while self._open and (self.unstarted or any(w.task is not None for w in self._open)):
                if self._stop is not None and self._stop():
                    self.is_stopped = True
                    return
                if self._pool.is_expedited:
                    self._raise_priority()
                yield from self._step()

    def _add(self, worker: WorkerProcess) -> None:
        self._open.add(worker)
        self._selector.register(worker.stdout, selectors.EVENT_READ, worker)
        worker.deadline = time.monotonic() + START_S * self._factor
        if worker.ready:
            self._assign_next(worker)

    def _raise_priority(self) -> None:
        """Raise workers to normal priority; replace starved workers whose priority cannot be raised."""
        for worker in [w for w in self._open if not w.set_niceness(0) and w.is_starved]:
            if worker.task is not None:
                self.unstarted.appendleft(worker.task)
            self._drop(worker)
            self.workers.remove(worker)
            for new in self._pool.replace(worker):
                self.workers.append(new)
                self._add(new)

    def _step(self) -> Iterator[tuple[int, bytes]]:
        """Wait for one batch of pipe events or a timeout, and handle it."""
        due = min(w.deadline for w in self._open if w.is_busy)
        timeout = max(0.0, due - time.monotonic())
        events = self._selector.select(min(timeout, _POLL_S))
        for key, _ in events:
            worker: WorkerProcess = key.data
            if worker not in self._open:
                continue
            try:
                if key.fd == worker.stdin:
                    if worker.send():
                        self._selector.unregister(worker.stdin)
                elif (answer := worker.receive()) is not None:
                    task, worker.task = worker.task, None
                    worker.ready = worker.ready or answer == READY
                    self._assign_next(worker)
                    if task is not None and answer:
                        yield task, answer
            except (OSError, EOFError):
                task, crash = worker.task, worker.crash()
                if task is not None and crash:
                    self.crashed[task] = crash
                self._drop(worker)
        for worker in [w for w in self._open if w.is_busy and time.monotonic() > w.deadline]:
            self._drop(worker)

    def _assign_next(self, worker: WorkerProcess) -> None:
        if self.unstarted:
            task = self.unstarted.popleft()
            worker.assign(task, *self._specs[task])
            worker.deadline = time.monotonic() + BUILD_S * self._factor
            self._selector.register(worker.stdin, selectors.EVENT_WRITE, worker)

    def _drop(self, worker: WorkerProcess) -> None:
        """Stop a worker; its program is not built."""
        self._open.remove(worker)
        for descriptor in (worker.stdin, worker.stdout):
            with suppress(KeyError):
                self._selector.unregister(descriptor)
        worker.task = None
        worker.stop()


def _remove_all(workers: list[WorkerProcess], folder: str, pid: int) -> None:
    """Clean up after a collected pool, except in a forked child: workers and folder are the parent's."""
    if os.getpid() == pid:
        _stop_all(workers)
        shutil.rmtree(folder, ignore_errors=True)


def _stop_all(workers: list[WorkerProcess]) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
