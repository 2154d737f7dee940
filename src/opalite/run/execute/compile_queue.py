"""CompileQueue: the background jobs of one device: plans, program builds, linked kernels, precision searches.

The jobs of one client run one after another on a thread that exists as long as the client has jobs. A client is a
session's BackgroundCompiler, or a job that needs no order. The jobs of different clients run concurrently.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress

from ...cl.device.fork_guard import is_child
from ...cl.runtime import Runtime
from ...errors import OpaliteError

_log = logging.getLogger(__name__)

POLL_S = 0.05
"""Seconds between two checks whether a job is due, or whether the interpreter ends."""
THREAD_NAME = "opalite-compile"


class Job:
    """One background task; finished once the task has run, failed or been dropped.

    fault: why it failed. is_daemon: the interpreter may end while the job runs. order: jobs of a client with a smaller
    number run first.
    """

    is_daemon = False
    order = 0

    def __init__(
        self, work: Callable[[], None] | None = None, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        """work, on_failure: functions that `run` and `fail` call. A job with `work` is a daemon."""
        self._work, self._on_failure = work, on_failure
        self.is_daemon = self.is_daemon or work is not None
        self.fault = ""
        self._over = threading.Event()

    def run(self) -> None:
        """Do the work, on the client's thread. Errors go to `fail`."""
        work = self._work
        if work is not None:  # else it was dropped
            work()

    def fail(self, error: Exception) -> None:
        """Record that `run` raised `error`."""
        if self._on_failure is not None:
            self._on_failure(error)

    @property
    def is_due(self) -> bool:
        """Whether the job may start now."""
        return True

    @property
    def is_wanted(self) -> bool:
        """Whether the result is still of use."""
        return True

    def make_due(self) -> None:
        """End the job's delay, because a caller waits for it."""

    @property
    def is_over(self) -> bool:
        """Whether the job has run, failed or was dropped."""
        return self._over.is_set()

    def end(self) -> None:
        """Mark the job as over and release what it references. A running job stops at its next check."""
        self._work = self._on_failure = None
        self._over.set()

    def stops(self) -> bool:
        """Whether the running job should return early: it was dropped, is not wanted, or the interpreter ends."""
        return self.is_over or not is_main_alive() or not self.is_wanted

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until the job is over. Returns whether it is."""
        return self._over.wait(timeout)


class CompileQueue:
    """The jobs of one device, by client. Thread-safe; in a forked child it accepts no jobs."""

    def __init__(self) -> None:
        # Reentrant: the finalizer of a session drops its jobs, on any thread that collects garbage.
        self._changed = threading.Condition(threading.RLock())
        self._jobs: dict[object, list[Job]] = {}  # a client is a key as long as its thread runs
        self._changes = 0

    def _notify(self) -> None:
        """Wake the threads that wait for a due job. The caller holds the lock."""
        self._changes += 1
        self._changed.notify_all()

    def submit(self, client: object, *jobs: Job) -> None:
        """Append jobs to those of `client`. A job whose thread cannot be started is over, with a fault."""
        if is_child():
            for job in jobs:
                job.end()
            return
        with self._changed:
            if client in self._jobs:
                self._jobs[client].extend(jobs)
                self._notify()
                return
            if not jobs:
                return
            self._jobs[client] = list(jobs)
            daemon = all(job.is_daemon for job in jobs)
            thread = threading.Thread(target=self._work, args=(client,), name=THREAD_NAME, daemon=daemon)
            try:
                thread.start()
            except RuntimeError as e:  # the system has no more threads, or the interpreter ends
                del self._jobs[client]
                for job in jobs:
                    job.fault = f"no thread can be started ({e})"
                    job.end()

    def jobs(self, client: object) -> list[Job]:
        """The jobs of `client` that are not over."""
        if is_child():
            return []
        with self._changed:
            return list(self._jobs.get(client, ()))

    @property
    def clients(self) -> list[object]:
        """The clients whose threads have not ended."""
        with self._changed:
            return list(self._jobs)

    def drop(self, client: object) -> None:
        """End all jobs of `client`."""
        if is_child():
            return
        with self._changed:
            jobs = list(self._jobs.get(client, ()))
            self._jobs.get(client, []).clear()
            self._notify()
        for job in jobs:
            job.end()

    def settle(self, jobs: Iterable[Job], timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until `jobs` are over, delayed ones included. Returns whether they are."""
        end = None if timeout is None else time.monotonic() + timeout
        waited = list(jobs)
        for job in waited:
            job.make_due()
        if not waited or is_child():
            return True
        with self._changed:
            self._notify()
        done = [job.wait(None if end is None else max(0.0, end - time.monotonic())) for job in waited]
        return all(done)

    def _work(self, client: object) -> None:
        """Run the jobs of `client` until there are none. Target of its thread."""
        while (job := self._next(client)) is not None:
            try:
                job.run()
            except (OpaliteError, MemoryError) as e:
                job.fail(e)
            except Exception as e:
                if is_main_alive():
                    _log.exception("a background job failed")
                    job.fail(e)
            with self._changed, suppress(ValueError):  # dropped
                self._jobs[client].remove(job)
            job.end()

    def _next(self, client: object) -> Job | None:
        """Wait for a job of `client` that may start. None if there are no jobs, so that the thread ends."""
        while True:
            with self._changed:
                jobs, changes = sorted(self._jobs[client], key=lambda job: job.order), self._changes
                if not jobs:
                    del self._jobs[client]
                    return None
            for job in jobs:  # without the lock, because jobs take locks of their own
                if job.is_due or job.is_over or not (job.is_wanted and is_main_alive()):
                    return job
            with self._changed:
                if changes == self._changes:
                    self._changed.wait(POLL_S)


_queues: weakref.WeakKeyDictionary[Runtime, CompileQueue] = weakref.WeakKeyDictionary()
_queues_lock = threading.Lock()


def compile_queue(rt: Runtime) -> CompileQueue:
    """The queue of a device."""
    with _queues_lock:
        return _queues.setdefault(rt, CompileQueue())


def is_main_alive() -> bool:
    """Whether the interpreter is not about to end: threads that are no daemons outlive the main thread."""
    return threading.main_thread().is_alive()
