"""Builds programs in worker processes, for drivers that compile one program at a time in a process (PoCL).
Longer than 400 lines: the pool, a process of it and what is said between them know each other's states.

Nothing here fails: what the workers do not deliver - they cannot start, are killed, hang, or the program does not
compile - the caller builds itself. A program whose compiler ends the worker it runs in would end the caller, too: such
programs are told apart.
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

START_S = 30.0  # a worker that is not ready by then is given up, as is one that takes BUILD_S for a program
BUILD_S = 60.0
_BACKGROUND = 10
_EACH = 2  # programs at least for which one more process pays: it takes as long to start as two take to compile
_CHUNK = 1 << 16
_LOOK_S = 0.1  # between two questions whether to stop, or whether somebody waits
_STARVED = 0.5  # of a core: a worker that gets less is replaced where its priority cannot be raised
_END_S = 5.0  # that a process which has closed its output may take to end
_WORDS = 200  # characters of what it said last
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if os.name == "posix" else ()


class BuildPool:
    """Up to `limit` processes that build for the device at `index` ('platform:device') with `version`.

    They start at the first `start` or `build` and end when they have had nothing to do for a while, at `close`, or with
    this process, however it ends. is_hurried: whether somebody waits for the build, or has waited since it began.
    """

    def __init__(self, index: str, version: str, limit: int, *, niceness: int = 0) -> None:
        """niceness: of the processes, beside this one; with some, a program may take ten times as long."""
        self._niceness = niceness
        self._is_patient = niceness > 0
        self._index = index
        self._version = version
        self._limit = limit
        self._workers: list[_Worker] = []
        self._busy = Lock()
        self._count_lock = Lock()
        self._waiting = 0
        self.is_expedited = False
        self._folder = ""

    @contextmanager
    def expedite_builds(self) -> Iterator[None]:
        """Meanwhile somebody waits for what is being built: to the end of that build, no worker gives way to others.

        Where the priority of a worker cannot be raised again, and it is starved, a new one takes over its program.
        """
        with self._count_lock:
            self._waiting += 1
            self.is_expedited = True
        try:
            yield
        finally:
            with self._count_lock:
                self._waiting -= 1

    @property
    def workers(self) -> Sequence[_Worker]:
        """The processes, those that have ended included."""
        return list(self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return [w.process.pid for w in self._workers if w.is_alive]

    def start(self, count: int | None = None) -> None:
        """Start workers that do not run yet, so that `count` (at most the limit) get ready for `build`."""
        wanted = min(self._limit, self._limit if count is None else count)
        for worker in [w for w in self._workers if not w.is_alive]:
            worker.stop()
            self._workers.remove(worker)
        if not sys.executable:
            return
        with suppress(OSError, DeviceError):
            prepare_linker()
            # Where a worker would not survive, the caller says so, who builds by itself.
            check_files(BUILD_FILES, "compiling a program with PoCL")
            is_gone = self._folder and not os.path.isdir(self._folder)
            if is_gone and all(w.task is None for w in self._workers):  # theirs is the only one that they know
                _stop_all(self._workers)
                self._folder = ""
            if not self._folder:
                self._folder = make_build_folder()
                weakref.finalize(self, _end, self._workers, self._folder, os.getpid())
            while len(self._workers) < wanted:
                self._workers.append(_Worker(self._command(), self._folder, *self._patience))
            for worker in self._workers:
                worker.give_way(0 if self.is_expedited else self._niceness)

    def build(
        self,
        specs: Sequence[tuple[str, str]],
        *,
        waits: bool = False,
        lost: dict[int, str] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Binaries of (source, options) as they get ready, each with its number in `specs`; failures are left out.

        Nothing if another thread has the workers, unless it `waits` for them. `lost` is filled with the programs whose
        compiler ended its process, and how it ended; other workers go on with the rest. `stop` is asked ten times a
        second whether nobody wants the rest any more.
        """
        if not specs:
            return
        if (stop is not None and stop()) or not self._take(waits, stop):
            return
        try:
            with self._count_lock:
                self.is_expedited = self._waiting > 0
            waiting = dict(enumerate(specs))
            while waiting:
                self.start(max(1, len(waiting) // _EACH))
                exchange = _Exchange(self, waiting, stop)
                with background_build():
                    yield from exchange.run()
                if lost is not None:
                    lost.update(exchange.lost)
                waiting = exchange.left if exchange.lost and not exchange.is_stopped else {}
        finally:
            for worker in self._workers:
                if worker.task is not None:
                    worker.stop()
            self._busy.release()

    def _take(self, waits: bool, stop: Callable[[], bool] | None) -> bool:
        """Whether the workers are this thread's now."""
        if stop is None or not waits:
            return self._busy.acquire(blocking=waits)
        while not stop():
            if self._busy.acquire(timeout=_LOOK_S):
                return True
        return False

    def take_over_workers(self, other: BuildPool) -> None:
        """Take over idle processes of `other`, as many as this pool may have, rather than start some.

        They give way to others as this pool's do from now on. `other` starts new ones when it needs some.
        """
        if not other._busy.acquire(blocking=False):
            return
        try:
            if not self._busy.acquire(blocking=False):
                return
            try:
                for worker in [w for w in other._workers if w.is_alive]:
                    if len(self.pids) >= self._limit:
                        break
                    worker.give_way(self._niceness)
                    worker.extend_timeout(*self._patience)
                    other._workers.remove(worker)
                    self._workers.append(worker)
            finally:
                self._busy.release()
        finally:
            other._busy.release()

    def expect(self) -> None:
        """Start workers up to the limit, unless a thread builds, which sees to that."""
        if self._busy.acquire(blocking=False):
            try:
                self.start()
            finally:
                self._busy.release()

    def lower_priority(self, niceness: int) -> None:
        """Let processes give way to others as one of `niceness` does from the next start or build on."""
        self._niceness = niceness

    def replace(self, worker: _Worker) -> list[_Worker]:
        """Start a worker in the place of one that has been ended; the new one, if it could be started."""
        self._workers.remove(worker)
        known = list(self._workers)
        self.start(len(known) + 1)
        return [w for w in self._workers if w not in known]

    def close(self) -> None:
        """End the workers; `start` and `build` start new ones."""
        _stop_all(self._workers)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    @property
    def _patience(self) -> tuple[float, float]:
        """Seconds that a process may take to start and for a program."""
        return (START_S * _BACKGROUND, BUILD_S * _BACKGROUND) if self._is_patient else (START_S, BUILD_S)

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", f"{__package__}.build_worker", self._index, self._version]


class _Worker:
    """One process with what is on the way to and from it."""

    def __init__(self, command: list[str], folder: str, start_s: float, build_s: float) -> None:
        """folder: for PoCL's files."""
        self._build_s = build_s
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the worker is stopped
        self.process = subprocess.Popen(
            command,
            env=worker_environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
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
        """Whether the process runs."""
        return self.process.poll() is None

    def give_way(self, niceness: int) -> bool:
        """Let it be nicer than this process by `niceness`; whether it is now."""
        if niceness != self._niceness and set_niceness(self.process.pid, niceness):
            self._niceness = niceness
        return niceness == self._niceness

    @property
    def is_starved(self) -> bool:
        """Whether it is at work, and gets less of a core than it could use; to be asked again and again."""
        share = self._share.since_last()
        return self.is_busy and share is not None and share < _STARVED

    def extend_timeout(self, start_s: float, build_s: float) -> None:
        """From now on it may take so long to start, and for a program."""
        self._build_s = build_s
        self.deadline = time.monotonic() + start_s

    @property
    def is_busy(self) -> bool:
        """Whether it is starting or building."""
        return self.task is not None or not self.ready

    def give(self, task: int, text: str, options: str) -> None:
        """Ask for the program (text, options), number `task`."""
        raw_options, raw_text = options.encode(), text.encode()
        self.outgoing = REQUEST.pack(len(raw_options), len(raw_text)) + raw_options + raw_text
        self.task = task
        self.deadline = time.monotonic() + self._build_s

    def send(self) -> None:
        """Write what fits of the request. OSError if the process is gone."""
        self.outgoing = self.outgoing[os.write(self.stdin, self.outgoing) :]

    def receive(self) -> bytes | None:
        """A whole answer, or None while there is none. EOFError if the process is gone."""
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

    def death(self) -> str:
        """How the process ended, if that was its compiler's doing: its status and its last words; else ""."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        status = self.process.returncode
        if self.task is None or not status or -status in _FROM_OUTSIDE:
            return ""
        self._said.seek(0)
        words = self._said.read().decode(errors="replace").strip().splitlines()
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"exit status {status}"
        return f"{name}, {words[-1][:_WORDS]!r}" if words else name

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self._said.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class _Exchange:
    """Hands programs to whichever worker is free and collects the binaries, in one thread."""

    def __init__(self, pool: BuildPool, specs: Mapping[int, tuple[str, str]], stop: Callable[[], bool] | None) -> None:
        self._pool = pool
        self._stop = stop
        self.is_stopped = False
        self.lost: dict[int, str] = {}  # programs whose compiler ended the worker, and how
        self._specs = specs
        self._waiting = deque(specs)
        self._open: set[_Worker] = set()
        self._selector = selectors.DefaultSelector()

    def run(self) -> Iterator[tuple[int, bytes]]:
        """(number, binary) of the programs that were built, until all are done or every worker is lost."""
        with self._selector:
            for worker in self._pool.workers:
                self._join(worker)
            while self._open and (self._waiting or any(w.task is not None for w in self._open)):
                if self._stop is not None and self._stop():
                    self.is_stopped = True
                    return
                self._hasten()
                yield from self._step()

    def _join(self, worker: _Worker) -> None:
        self._open.add(worker)
        self._selector.register(worker.stdout, selectors.EVENT_READ, worker)
        if worker.ready:
            self._feed(worker)

    def _hasten(self) -> None:
        """Where somebody waits, have no worker give way any more."""
        if not self._pool.is_expedited:
            return
        for worker in [w for w in self._open if not w.give_way(0) and w.is_starved]:
            if worker.task is not None:
                self._waiting.appendleft(worker.task)
            self._drop(worker)
            for new in self._pool.replace(worker):
                self._join(new)

    @property
    def left(self) -> dict[int, tuple[str, str]]:
        """The programs that no worker has begun."""
        return {number: self._specs[number] for number in self._waiting}

    def _step(self) -> Iterator[tuple[int, bytes]]:
        """Wait for something to happen, and deal with it."""
        due = min(w.deadline for w in self._open if w.is_busy)
        patience = max(0.0, due - time.monotonic())
        events = self._selector.select(min(patience, _LOOK_S))
        for key, _ in events:
            worker: _Worker = key.data
            if worker not in self._open:
                continue
            try:
                if key.fd == worker.stdin:
                    self._send(worker)
                elif (answer := worker.receive()) is not None:
                    yield from self._take(worker, answer)
            except (OSError, EOFError):
                task, death = worker.task, worker.death()
                if task is not None and death:
                    self.lost[task] = death
                self._drop(worker)
        for worker in [w for w in self._open if w.is_busy and time.monotonic() > w.deadline]:
            self._drop(worker)

    def _send(self, worker: _Worker) -> None:
        worker.send()
        if not worker.outgoing:
            self._selector.unregister(worker.stdin)

    def _take(self, worker: _Worker, answer: bytes) -> Iterator[tuple[int, bytes]]:
        task, worker.task = worker.task, None
        worker.ready = worker.ready or answer == READY
        self._feed(worker)
        if task is not None and answer:
            yield task, answer

    def _feed(self, worker: _Worker) -> None:
        if self._waiting:
            task = self._waiting.popleft()
            worker.give(task, *self._specs[task])
            self._selector.register(worker.stdin, selectors.EVENT_WRITE, worker)

    def _drop(self, worker: _Worker) -> None:
        """Give up a worker, and with it the program that it had."""
        self._open.remove(worker)
        for descriptor in (worker.stdin, worker.stdout):
            with suppress(KeyError):
                self._selector.unregister(descriptor)
        worker.task = None
        worker.stop()


def _end(workers: list[_Worker], folder: str, pid: int) -> None:
    """What a pool that is gone leaves; in a process forked from its own, all of that is another's."""
    if os.getpid() == pid:
        _stop_all(workers)
        shutil.rmtree(folder, ignore_errors=True)


def _stop_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
