"""BuildPool: compiles programs in worker processes, for drivers that compile one program at a time in a process (PoCL).
Longer than 400 lines: pool, worker and their protocol share one state machine.

Builds never raise here. The caller compiles every program that the workers do not deliver: a worker may fail to start,
be killed or hang, and a program may not compile. Programs that crash the compiler are reported apart, because they
would crash the caller too.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock

from ...errors import DeviceError
from ...pocl.cpu_workarounds import make_build_folder, worker_environment
from ...pocl.process_limits import BUILD_FILES, check_files
from ...pocl.provide_linker import prepare_linker
from .background_throttle import background_build
from .build_worker import ANSWER, READY, REQUEST
from .process_priority import CoreShare, set_niceness

START_S = 30.0  # timeout until a worker is ready
BUILD_S = 60.0  # timeout of one program
_BACKGROUND_FACTOR = 10  # timeouts are so much longer in the background
_PROGRAMS_PER_WORKER = 2  # a worker takes as long to start as two programs to compile
_CHUNK = 1 << 16
_POLL_S = 0.1  # interval at which stop requests and priorities are checked
_STARVED = 0.5  # core share below which a worker is replaced if its priority cannot be raised
_EXIT_S = 5.0  # timeout of a process that has closed its output
_MESSAGE_CHARACTERS = 200
_EXTERNAL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if os.name == "posix" else ()


class BuildPool:
    """Up to `limit` processes that build for the device at `index` ('platform:device') with `version`.

    They start at the first `start` or `build`. They end after IDLE_S without work, at `close`, or with this process.
    is_expedited: whether a caller waits for the current build, or has waited since it began.
    """

    def __init__(self, index: str, version: str, limit: int, *, niceness: int = 0) -> None:
        """niceness: of the workers, relative to this process. Timeouts are ten times as long unless it is 0."""
        self._niceness = niceness
        self._in_background = niceness > 0
        self._index = index
        self._version = version
        self._limit = limit
        self._workers: list[_Worker] = []
        self._lock = Lock()
        self._count_lock = Lock()
        self._waiters = 0
        self.is_expedited = False
        self._folder = ""

    @contextmanager
    def expedite_builds(self) -> Iterator[None]:
        """Inside, a caller waits for the current build: its workers run at normal priority until it ends.

        A starved worker whose priority cannot be raised is replaced by a new one, which builds its program again.
        """
        with self._count_lock:
            self._waiters += 1
            self.is_expedited = True
        try:
            yield
        finally:
            with self._count_lock:
                self._waiters -= 1

    @property
    def workers(self) -> Sequence[_Worker]:
        """All workers, including those that have ended."""
        return list(self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [w.process.pid for w in self._workers if w.is_alive]

    def start(self, count: int | None = None) -> None:
        """Start workers until `count` run, by default up to the limit."""
        wanted = min(self._limit, self._limit if count is None else count)
        for worker in [w for w in self._workers if not w.is_alive]:
            worker.stop()
            self._workers.remove(worker)
        if not sys.executable:
            return
        with suppress(OSError, DeviceError):
            prepare_linker()
            # A worker would crash without free files; the caller, who then builds, raises the error.
            check_files(BUILD_FILES, "compiling a program with PoCL")
            is_gone = self._folder and not os.path.isdir(self._folder)
            if is_gone and all(w.task is None for w in self._workers):  # workers cannot change their folder
                _stop_all(self._workers)
                self._folder = ""
            if not self._folder:
                self._folder = make_build_folder()
                weakref.finalize(self, _clean_up, self._workers, self._folder, os.getpid())
            while len(self._workers) < wanted:
                self._workers.append(_Worker(self._command(), self._folder, *self._timeouts))
            for worker in self._workers:
                worker.set_niceness(0 if self.is_expedited else self._niceness)

    def build(
        self,
        specs: Sequence[tuple[str, str]],
        *,
        waits: bool = False,
        crashed: dict[int, str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (number in `specs`, binary) for each (source, options) that was built; failures are left out.

        Yields nothing while another thread uses the pool, unless `waits`. crashed: receives the programs that crashed
        the compiler, with a description of each crash. stop: called ten times a second; True ends the build.
        """
        if not specs:
            return
        if (stop is not None and stop()) or not self._acquire(waits, stop):
            return
        try:
            with self._count_lock:
                self.is_expedited = self._waiters > 0
            waiting = dict(enumerate(specs))
            while waiting:
                self.start(max(1, len(waiting) // _PROGRAMS_PER_WORKER))
                scheduler = _Scheduler(self, waiting, stop)
                with background_build():
                    yield from scheduler.run()
                if crashed is not None:
                    crashed.update(scheduler.crashed)
                waiting = scheduler.unstarted if scheduler.crashed and not scheduler.is_stopped else {}
        finally:
            for worker in self._workers:
                if worker.task is not None:
                    worker.stop()
            self._lock.release()

    def _acquire(self, waits: bool, stop: Callable[[], bool] | None) -> bool:
        """Lock the pool for this thread; returns whether that succeeded."""
        if stop is None or not waits:
            return self._lock.acquire(blocking=waits)
        while not stop():
            if self._lock.acquire(timeout=_POLL_S):
                return True
        return False

    def take_over_workers(self, other: BuildPool) -> None:
        """Move idle workers of `other` to this pool, up to its limit, with this pool's niceness and timeouts."""
        if not other._lock.acquire(blocking=False):
            return
        try:
            if not self._lock.acquire(blocking=False):
                return
            try:
                for worker in [w for w in other._workers if w.is_alive]:
                    if len(self.pids) >= self._limit:
                        break
                    worker.set_niceness(self._niceness)
                    worker.extend_timeout(*self._timeouts)
                    other._workers.remove(worker)
                    self._workers.append(worker)
            finally:
                self._lock.release()
        finally:
            other._lock.release()

    def prestart(self) -> None:
        """Start workers up to the limit, unless a build is running: it starts its own."""
        if self._lock.acquire(blocking=False):
            try:
                self.start()
            finally:
                self._lock.release()

    def lower_priority(self, niceness: int) -> None:
        """Set the workers' niceness, effective from the next start or build."""
        self._niceness = niceness

    def replace(self, worker: _Worker) -> list[_Worker]:
        """Start a replacement of a stopped worker; returns it, or [] if it cannot start."""
        self._workers.remove(worker)
        known = list(self._workers)
        self.start(len(known) + 1)
        return [w for w in self._workers if w not in known]

    def close(self) -> None:
        """Stop the workers. `start` and `build` start new ones."""
        _stop_all(self._workers)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    @property
    def _timeouts(self) -> tuple[float, float]:
        """Timeouts of a worker's start and of one program, in seconds."""
        factor = _BACKGROUND_FACTOR if self._in_background else 1
        return START_S * factor, BUILD_S * factor

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", f"{__package__}.build_worker", self._index, self._version]


class _Worker:
    """One worker process with its partial request and answer."""

    def __init__(self, command: list[str], folder: str, start_s: float, build_s: float) -> None:
        """folder: for PoCL's files. start_s, build_s: timeouts."""
        self._build_s = build_s
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the worker is stopped
        self.process = subprocess.Popen(
            command,
            env=worker_environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        os.set_blocking(self.stdout, False)
        self._niceness = 0
        self._share = CoreShare(self.process.pid)
        self.ready = False
        self.task: int | None = None
        self.deadline = time.monotonic() + start_s
        self.outgoing = b""
        self._incoming = bytearray()

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    def set_niceness(self, niceness: int) -> bool:
        """Set the niceness relative to this process; returns whether that succeeded."""
        if niceness != self._niceness and set_niceness(self.process.pid, niceness):
            self._niceness = niceness
        return niceness == self._niceness

    @property
    def is_starved(self) -> bool:
        """Return whether the worker is busy and got less than half a core since the last call."""
        share = self._share.since_last()
        return self.is_busy and share is not None and share < _STARVED

    def extend_timeout(self, start_s: float, build_s: float) -> None:
        """Set the timeouts of start and build, in seconds."""
        self._build_s = build_s
        self.deadline = time.monotonic() + start_s

    @property
    def is_busy(self) -> bool:
        """Return whether the worker is starting or building."""
        return self.task is not None or not self.ready

    def assign(self, task: int, text: str, options: str) -> None:
        """Request the program (text, options) with number `task`."""
        raw_options, raw_text = options.encode(), text.encode()
        self.outgoing = REQUEST.pack(len(raw_options), len(raw_text)) + raw_options + raw_text
        self.task = task
        self.deadline = time.monotonic() + self._build_s

    def send(self) -> None:
        """Write as much of the request as the pipe takes. Raises OSError if the process has ended."""
        self.outgoing = self.outgoing[os.write(self.stdin, self.outgoing) :]

    def receive(self) -> bytes | None:
        """Read; returns the answer once it is complete, else None. Raises EOFError if the process has ended."""
        part = os.read(self.stdout, _CHUNK)
        if not part:
            raise EOFError
        self._incoming += part
        if len(self._incoming) < ANSWER.size:
            return None
        end = ANSWER.size + ANSWER.unpack_from(self._incoming)[0]
        if len(self._incoming) < end:
            return None
        answer = bytes(self._incoming[ANSWER.size : end])
        del self._incoming[:end]
        return answer

    def crash(self) -> str:
        """Status and last message of the process if its compiler crashed; else ""."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_S)
        status = self.process.returncode
        if self.task is None or not status or -status in _EXTERNAL_SIGNALS:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"exit status {status}"
        return f"{name}, {lines[-1][:_MESSAGE_CHARACTERS]!r}" if lines else name

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        self._stderr.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class _Scheduler:
    """Assigns programs to idle workers and collects the binaries, in one thread."""

    def __init__(self, pool: BuildPool, specs: Mapping[int, tuple[str, str]], stop: Callable[[], bool] | None) -> None:
        self._pool = pool
        self._stop = stop
        self.is_stopped = False
        self.crashed: dict[int, str] = {}  # programs that crashed the compiler, and how
        self._specs = specs
        self._waiting = deque(specs)
        self._open: set[_Worker] = set()
        self._selector = selectors.DefaultSelector()

    def run(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, binary) of built programs until all are done or no worker is left."""
        with self._selector:
            for worker in self._pool.workers:
                self._add(worker)
            while self._open and (self._waiting or any(w.task is not None for w in self._open)):
                if self._stop is not None and self._stop():
                    self.is_stopped = True
                    return
                self._raise_priority()
                yield from self._step()

    def _add(self, worker: _Worker) -> None:
        self._open.add(worker)
        self._selector.register(worker.stdout, selectors.EVENT_READ, worker)
        if worker.ready:
            self._assign_next(worker)

    def _raise_priority(self) -> None:
        """Raise workers to normal priority while a caller waits; replace starved ones that cannot be raised."""
        if not self._pool.is_expedited:
            return
        for worker in [w for w in self._open if not w.set_niceness(0) and w.is_starved]:
            if worker.task is not None:
                self._waiting.appendleft(worker.task)
            self._drop(worker)
            for new in self._pool.replace(worker):
                self._add(new)

    @property
    def unstarted(self) -> dict[int, tuple[str, str]]:
        """Programs that no worker has started."""
        return {number: self._specs[number] for number in self._waiting}

    def _step(self) -> Iterator[tuple[int, bytes]]:
        """Wait for one batch of pipe events or a timeout, and handle it."""
        due = min(w.deadline for w in self._open if w.is_busy)
        timeout = max(0.0, due - time.monotonic())
        events = self._selector.select(min(timeout, _POLL_S))
        for key, _ in events:
            worker: _Worker = key.data
            if worker not in self._open:
                continue
            try:
                if key.fd == worker.stdin:
                    self._send(worker)
                elif (answer := worker.receive()) is not None:
                    yield from self._accept(worker, answer)
            except (OSError, EOFError):
                task, crash = worker.task, worker.crash()
                if task is not None and crash:
                    self.crashed[task] = crash
                self._drop(worker)
        for worker in [w for w in self._open if w.is_busy and time.monotonic() > w.deadline]:
            self._drop(worker)

    def _send(self, worker: _Worker) -> None:
        worker.send()
        if not worker.outgoing:
            self._selector.unregister(worker.stdin)

    def _accept(self, worker: _Worker, answer: bytes) -> Iterator[tuple[int, bytes]]:
        task, worker.task = worker.task, None
        worker.ready = worker.ready or answer == READY
        self._assign_next(worker)
        if task is not None and answer:
            yield task, answer

    def _assign_next(self, worker: _Worker) -> None:
        if self._waiting:
            task = self._waiting.popleft()
            worker.assign(task, *self._specs[task])
            self._selector.register(worker.stdin, selectors.EVENT_WRITE, worker)

    def _drop(self, worker: _Worker) -> None:
        """Stop a worker; its program is not built."""
        self._open.remove(worker)
        for descriptor in (worker.stdin, worker.stdout):
            with suppress(KeyError):
                self._selector.unregister(descriptor)
        worker.task = None
        worker.stop()


def _clean_up(workers: list[_Worker], folder: str, pid: int) -> None:
    """Clean up after a collected pool, except in a forked child: workers and folder are the parent's."""
    if os.getpid() == pid:
        _stop_all(workers)
        shutil.rmtree(folder, ignore_errors=True)


def _stop_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
