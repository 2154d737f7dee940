"""BackgroundCompiler: what makes the specialised executables of a session while its runs go on with general ones.

Nobody waits for a compiler: where programs made for a model's nodes are missing, its first runs go through general
programs, which any model shares (docs/tiers.md). A thread of the session has worker processes build what is missing,
makes the Executable, and puts it in the other's place between two runs. The thread ends when there is nothing to do,
with the session, or with the interpreter, whose end it looks out for.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ....cl.device.fork_guard import is_child
from ....cl.programs.background_throttle import background_planning
from ....cl.programs.program_cache import Part, Spec
from ....cl.runtime import Runtime
from ....cl.runtime_counters import ProgramCounts
from ....errors import OpaliteError
from ...execute.executable import Executable
from ...execute.strategies.megakernel_builder import supports_megakernel

if TYPE_CHECKING:
    from ..executable_cache import Compiled, ExecutableCache

_log = logging.getLogger(__name__)

MIN_RELEASED_BYTES = 64 << 20
"""Bytes of a general executable's weights from which on it lets go of them before those of the special one are made, so
that they are in memory once. Runs that come meanwhile wait: by general programs they would take longer."""

LOOK_S = 0.05
"""How often it is asked whether a job is due, or the interpreter ends, while none is."""

Make: TypeAlias = "Callable[[Callable[[], None]], Compiled]"
"""Makes an Executable; calls what it is given before the weights are in memory."""

SOON_S = 0.05
"""How long nothing is planned after a first run: a process that ends with it should not have to wait for a plan."""

SPARE_IDLE_S, SPARE_LATEST_S = 0.2, 30.0
"""How long there is no run before general programs are built that no model has needed yet, as runs leave cores to what
is built, and how long they are put off at most."""

WORTH_RUNS = 5
"""By general programs, of an executable that runs often: its step loop is linked beside its other programs."""


class Task(NamedTuple):
    """Programs to be built, and what makes an Executable of them: None where they are all that is wanted. parts: of
    the program of its step loop, if it may get one."""

    programs: Sequence[Spec]
    make: Make | None = None
    parts: Sequence[Part] = ()


class Job:
    """One Executable to be made: a specialised one, that takes the place of a general one.

    begin: finds out what it is built of, and what makes it when these programs are there. is_over: nothing more will
    come of it. fault: why nothing came of it.
    """

    is_urgent = True
    """Whether runs are slow until it is done."""

    def __init__(
        self, begin: Callable[[], Task], general: Sequence[Spec] = (), then: Callable[[], object] | None = None
    ) -> None:
        """general: programs that other processes may want, too. then: to be called when it is done."""
        self.begin: Callable[[], Task] | None = begin
        self.general = general
        self.then = then
        self.fault = ""
        self._over = threading.Event()
        self._target: tuple[weakref.ref[ExecutableCache], weakref.ref[Any], weakref.ref[Compiled]] | None = None

    def set_target(self, cache: ExecutableCache, key: Hashable, general: Compiled) -> None:
        """Where what is made goes: in the place of `general`, and nowhere if that has gone."""
        self._target = weakref.ref(cache), weakref.ref(key), weakref.ref(general)

    @property
    def replaces(self) -> bool:
        """Whether an Executable is to take another's place, and not just programs to be there."""
        return self._target is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self._over.is_set()

    def end(self) -> None:
        """Nothing more will come of it, and nothing that it held is needed."""
        self.begin = self.then = None
        self._over.set()

    @property
    def is_due(self) -> bool:
        """Whether it may begin; others that may go first."""
        return True

    def make_due(self) -> None:
        """Somebody waits for it: it is due."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over; whether it is."""
        return self._over.wait(timeout)

    def find_target(self) -> tuple[ExecutableCache, Hashable, Compiled] | None:
        """Cache, key and what to replace, as long as that is what runs of the key go through."""
        if self._target is None:
            return None
        cache_of, key_of, general_of = self._target
        cache, key, general = cache_of(), key_of(), general_of()
        if cache is None or key is None or general is None or not cache.has(key, general):
            return None
        return cache, key, general

    def install(self, made: Compiled) -> Compiled | None:
        """Put what was made in place; what it has replaced, if anything."""
        found = self.find_target()
        if found is None or self.is_over or not found[0].swap(found[1], found[2], made):
            return None
        return found[2]

    def fail(self, fault: str) -> str:
        """Note that nothing came of it; what to warn of, if that needs to be known."""
        self.fault = fault
        found = self.find_target()
        if found is not None:
            found[2].notes = (*found[2].notes, f"general programs go on: the specialised ones failed: {fault}")
        return f"the session goes on with general programs, because the specialised ones failed: {fault}"

    @property
    def is_wanted(self) -> bool:
        """Whether somebody would run what is made."""
        return self._target is None or self.find_target() is not None


class SpareCompileJob(Job):
    """General programs that no model has needed yet: they are built while nothing runs, which takes nobody a core."""

    def __init__(self, missing: Sequence[Spec], then: Callable[[], object], count_runs: Callable[[], int]) -> None:
        """count_runs: how many runs of the session there were."""
        super().__init__(lambda: Task(missing), missing, then)
        self._count_runs = count_runs
        self._seen = -1
        self._since = 0.0
        self._latest: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether no run has ended for a while, or somebody waits for it, or it was put off for long."""
        now, runs = time.monotonic(), self._count_runs()
        if self._latest is None:
            self._latest = now + SPARE_LATEST_S
        if runs != self._seen:
            self._seen, self._since = runs, now
        return now - self._since >= SPARE_IDLE_S or now >= self._latest

    def make_due(self) -> None:
        """Somebody waits for it."""
        self._latest = 0.0


class BackgroundCompiler:
    """The jobs of one session. tally: programs that were built for them. swaps: executables that were put in place.
    gives_up: what should have taken a general executable's place could not be made, and the general one is gone.
    """

    def __init__(self, rt: Runtime, on_swap: Callable[[Executable, Executable], None]) -> None:
        """on_swap: told of an executable that is replaced, and by which, between two runs; held weakly."""
        self._rt = rt
        self._on_swap = weakref.WeakMethod(on_swap)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # there is a job, or one is due
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._links: list[threading.Thread] = []
        self.counts = ProgramCounts(in_background=True)
        self.swaps = 0
        self.gives_up = False
        self.faults: list[str] = []

    @property
    def jobs(self) -> list[Job]:
        """What is not over yet."""
        with self._lock:
            return list(self._jobs)

    def submit(self, *jobs: Job) -> None:
        """Have jobs done, after those that are there; those that are for other models alone come last."""
        with self._lock:
            if self._is_closed or is_child():
                for job in jobs:
                    job.end()
                return
            self._jobs.extend(jobs)
            if not self._jobs:
                return
            if self._thread is not None:
                self._changed.notify()
                return
            self._thread = threading.Thread(target=self._work, name="opalite-behind")
            try:
                self._thread.start()
                return
            except RuntimeError as e:  # the system has no more threads, or the interpreter ends
                self._thread = None
                self._jobs.clear()
                for job in jobs:
                    job.fault = f"no thread can be started ({e})"
                    job.end()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; whether nothing is. Jobs that were not due yet are, now."""
        end = None if timeout is None else time.monotonic() + timeout
        jobs = self.jobs
        for job in jobs:
            job.make_due()
        with self._lock:
            self._changed.notify()
        waited = [job.wait(None if end is None else max(0.0, end - time.monotonic())) for job in jobs]
        return all(waited)

    def drop(self) -> list[Job]:
        """Give up all jobs; these are given back."""
        with self._lock:
            jobs, self._jobs = self._jobs, deque()
            self._changed.notify()
        for job in jobs:
            job.end()
        return list(jobs)

    def close(self) -> None:
        """Give up all jobs, and take no more."""
        if is_child():
            return
        with self._lock:
            self._is_closed = True
        self.drop()

    def _work(self) -> None:
        while True:
            with self._lock:
                job = self._next_job()
                if job is None:
                    self._thread = None
                    return
            try:
                self._do(job)
            except (OpaliteError, MemoryError) as e:
                self._tell(job, f"{type(e).__name__}: {e}" if isinstance(e, MemoryError) else str(e))
            except Exception as e:
                if threading.main_thread().is_alive():
                    _log.exception("making a specialised executable failed")
                    self._tell(job, f"{type(e).__name__}: {e}")
            with self._lock, suppress(ValueError):  # dropped
                self._jobs.remove(job)
            job.end()

    def _next_job(self) -> Job | None:
        """Wait until one is due, with the lock; None where there is none, or the interpreter ends."""
        while self._jobs and threading.main_thread().is_alive():
            for job in sorted(self._jobs, key=lambda job: bool(job.general)):
                if job.general and self._is_linking:  # whose runs are faster with what is linked
                    continue
                if job.is_due or job.is_over or not job.is_wanted:
                    return job
            self._changed.wait(LOOK_S)
        return self._jobs[0] if self._jobs else None

    def _do(self, job: Job) -> None:
        begin = job.begin

        def stop() -> bool:
            return job.is_over or not threading.main_thread().is_alive() or not job.is_wanted

        build = self._rt.programs
        is_urgent = job.is_urgent and self.swaps == 0
        if job.replaces and is_urgent:
            soon = time.monotonic() + SOON_S
            while not stop() and time.monotonic() < soon:
                time.sleep(SOON_S / 5)
            if not stop():
                build.prestart_background_workers(
                    may_link=supports_megakernel(self._rt)
                )  # processes start while the plan is made
        if begin is not None and not stop():
            with background_planning():
                task = begin()
            if job.replaces and is_urgent and task.parts:
                self._join_early(job, task.parts)
            if not stop():
                build.build_in_background(task.programs, stop, self.counts, urgent=is_urgent)
        if begin is None or stop():
            return
        make, then = task.make, job.then
        if then is not None:
            then()
        if make is None:
            return
        released: list[tuple[ExecutableCache, Hashable, Compiled]] = []
        with ExitStack() as locked:

            def release() -> None:
                found = job.find_target() if job.replaces else None
                if found is not None and sum(found[2].executable.memory.weight_bytes.values()) >= MIN_RELEASED_BYTES:
                    locked.enter_context(found[2].executable.lock)
                    released.append(found)
                    found[2].executable.release()

            swapped = None
            try:
                with background_planning():
                    made = make(release)
                swapped = job.install(made)
            except BaseException:
                self.gives_up = self.gives_up or bool(released)
                raise
            finally:
                for cache, key, old in released:
                    if old is not swapped:
                        cache.drop(key, old)
        if swapped is not None:
            self.swaps += 1
            told = self._on_swap()
            if told is not None:
                told(swapped.executable, made.executable)
        finish, made.when_in_place = made.when_in_place, None
        if finish is not None:
            finish()

    def _join_early(self, job: Job, parts: Sequence[Part]) -> None:
        """Have the program of the step loop linked while others are built, once the general executable has run often.

        One process links it, which takes as long as all of these; what runs by then finds it
        (execute/strategies/megakernel_builder.py).
        """

        def is_closed() -> bool:
            return self._is_closed or not threading.main_thread().is_alive()

        def link() -> None:
            while not (is_closed() or job.is_over) and (found := job.find_target()) is not None:
                if found[2].executable.runs_without_megakernel >= WORTH_RUNS:
                    del found
                    self._rt.programs.link_in_background(parts, is_closed)
                    return
                del found
                time.sleep(LOOK_S)

        thread = threading.Thread(target=link, name="opalite-link-early", daemon=True)
        with suppress(RuntimeError):  # the system has no more threads
            thread.start()
            self._links.append(thread)

    @property
    def _is_linking(self) -> bool:
        self._links = [thread for thread in self._links if thread.is_alive()]
        return bool(self._links)

    def _tell(self, job: Job, fault: str) -> None:
        warning = job.fail(fault)
        if warning:
            self.faults.append(fault)
            _log.warning("%s", warning)
