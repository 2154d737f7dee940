"""BackgroundCompiler: compiles the optimized executables of a session while its runs use generic programs.

No caller waits for a compiler: if the programs made for a model are missing, its first runs use generic programs, which
all models share (docs/tiers.md). A background job has worker processes build what is missing, makes the optimized
Executable, and replaces the generic one between two runs. The job ends with the session or the interpreter.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ....cl.device.fork_guard import is_child
from ....cl.programs.background_throttle import background_planning
from ....cl.programs.program_cache import Part, Spec
from ....cl.runtime import Runtime
from ....cl.runtime_counters import ProgramCounts
from ....errors import OpaliteError
from ...execute.compile_queue import Job, compile_queue, is_main_alive
from ...execute.executable import Executable
from ...execute.strategies.megakernel_builder import supports_megakernel

if TYPE_CHECKING:
    from ..executable_cache import Compiled, ExecutableCache

_log = logging.getLogger(__name__)

MIN_RELEASED_BYTES = 64 << 20
"""Weights of a generic executable, in bytes, that are released before the optimized ones are made, so that only one
copy is in memory. Runs wait meanwhile: generic programs would take longer."""

START_DELAY_S = 0.05
"""Delay of the first plan after the first run, so that a process that ends with that run does not wait for a plan."""

SPARE_IDLE_S, SPARE_LATEST_S = 0.2, 30.0
"""Seconds without a run before generic programs are built that no model has needed yet, and their longest delay."""

WORTH_RUNS = 5
"""Runs by generic programs after which the megakernel of the optimized executable is linked with its programs."""

Make: TypeAlias = "Callable[[Callable[[], None]], Compiled]"
"""Makes an Executable. Calls its argument before the weights are loaded into memory."""


class Task(NamedTuple):
    """The programs to build, and a function that makes an Executable of them, None if the programs are all.

    parts: of the program of the megakernel, if there may be one.
    """

    programs: Sequence[Spec]
    make: Make | None = None
    parts: Sequence[Part] = ()


class CompileJob(Job):
    """Builds programs, and perhaps an Executable that replaces another one.

    begin: plans, and returns what is to be built. compiler: to which the job was submitted.
    """

    is_urgent = True
    """Whether runs are slow until the job is over."""

    def __init__(self, begin: Callable[[], Task]) -> None:
        super().__init__()
        self.begin: Callable[[], Task] | None = begin
        self.compiler: BackgroundCompiler | None = None
        self._target: tuple[weakref.ref[ExecutableCache], weakref.ref[Hashable], weakref.ref[Compiled]] | None = None
        self._earliest = 0.0

    def set_target(self, cache: ExecutableCache, key: Hashable, generic: Compiled) -> None:
        """Have the new executable replace `generic` in a cache. Without `generic` there, the job is not wanted."""
        self._target = weakref.ref(cache), weakref.ref(key), weakref.ref(generic)

    @property
    def replaces(self) -> bool:
        """Whether the job replaces an Executable, and does not only build programs."""
        return self._target is not None

    def find_target(self) -> tuple[ExecutableCache, Hashable, Compiled] | None:
        """The cache, the key, and the executable to replace; None if runs of the key no longer use it."""
        if self._target is None:
            return None
        cache_of, key_of, generic_of = self._target
        cache, key, generic = cache_of(), key_of(), generic_of()
        if cache is None or key is None or generic is None or not cache.has(key, generic):
            return None
        return cache, key, generic

    def delay(self, seconds: float) -> None:
        """Have the job start in so many seconds."""
        self._earliest = time.monotonic() + seconds

    @property
    def is_due(self) -> bool:
        """Whether the delay of the job has passed."""
        return time.monotonic() >= self._earliest

    def make_due(self) -> None:
        """End the delay of the job."""
        self._earliest = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether runs would use the result."""
        return self._target is None or self.find_target() is not None

    def end(self) -> None:
        """Mark the job as over and release the plan."""
        self.begin = None
        super().end()

    def run(self) -> None:
        """Plan, build the programs, make the executable and install it."""
        compiler, begin = self.compiler, self.begin
        assert compiler is not None
        if begin is None or self.stops():
            return
        build = compiler.rt.programs
        is_urgent = self.is_urgent and compiler.swaps == 0
        if self.replaces and is_urgent:  # worker processes start while the plan is made
            build.prestart_background_workers(may_link=supports_megakernel(compiler.rt))
        with background_planning():
            task = begin()
        if self.replaces and is_urgent and task.parts:
            compiler.link_early(self, task.parts)
        if not self.stops():
            build.build_in_background(task.programs, self.stops, compiler.counts, urgent=is_urgent)
        if self.stops():
            return
        self.on_built()
        if task.make is not None:
            self._replace(compiler, task.make)

    def on_built(self) -> None:
        """Called when the programs are built."""

    def _replace(self, compiler: BackgroundCompiler, make: Make) -> None:
        """Make the executable and install it. Large weights of the generic one are released in between."""
        released: list[tuple[ExecutableCache, Hashable, Compiled]] = []
        with ExitStack() as locked:

            def release() -> None:
                found = self.find_target() if self.replaces else None
                if found is None:
                    return
                executable = found[2].executable
                if sum(executable.memory.weight_bytes.values()) >= MIN_RELEASED_BYTES:
                    locked.enter_context(executable.lock)
                    released.append(found)
                    executable.release()

            swapped = None
            try:
                with background_planning():
                    made = make(release)
                swapped = self.install(made)
            except BaseException:
                compiler.gives_up = compiler.gives_up or bool(released)
                raise
            finally:
                for cache, key, old in released:
                    if old is not swapped:
                        cache.drop(key, old)
        if swapped is not None:
            compiler.report_swap(swapped.executable, made.executable)

    def install(self, made: Compiled) -> Compiled | None:
        """Replace the generic executable by `made`. Returns the replaced one; None if it was not there any more."""
        found = self.find_target()
        if found is None or self.is_over or not found[0].swap(found[1], found[2], made):
            return None
        return found[2]

    def fail(self, error: Exception) -> None:
        """Warn that runs continue with generic programs, and record the failure with the executable."""
        self.fault = describe_error(error)
        found = self.find_target()
        if found is not None:
            found[2].notes = (*found[2].notes, f"generic programs go on: the optimized ones failed: {self.fault}")
        if self.compiler is not None:
            self.compiler.faults.append(self.fault)
        _log.warning("the session goes on with generic programs, because the optimized ones failed: %s", self.fault)


class SpareCompileJob(CompileJob):
    """Builds generic programs that no model has needed yet, while nothing runs, so that no run lacks a core."""

    order = 1

    def __init__(self, missing: Sequence[Spec], then: Callable[[], object], count_runs: Callable[[], int]) -> None:
        """then: called when the programs are built. count_runs: the number of runs of the session."""
        super().__init__(lambda: Task(missing))
        self._then, self._count_runs = then, count_runs
        self._seen = -1
        self._since = 0.0
        self._latest: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether there was no run for a while, or the longest delay has passed. A link of a megakernel goes first."""
        if self.compiler is not None and self.compiler.is_linking:
            return False
        now, runs = time.monotonic(), self._count_runs()
        if self._latest is None:
            self._latest = now + SPARE_LATEST_S
        if runs != self._seen:
            self._seen, self._since = runs, now
        return now - self._since >= SPARE_IDLE_S or now >= self._latest

    def make_due(self) -> None:
        """End the delay of the job."""
        self._latest = 0.0

    def on_built(self) -> None:
        """See CompileJob.on_built."""
        self._then()


class EarlyLinkJob(Job):
    """Links the program of the megakernel while other programs are built, once the generic executable has run often.

    One process links it, which takes as long as all other builds. The MegakernelBuilder of the optimized executable
    finds the program in the cache.
    """

    is_daemon = True

    def __init__(self, compiler: BackgroundCompiler, build: CompileJob, parts: Sequence[Part]) -> None:
        super().__init__()
        self._compiler, self._build, self._parts = compiler, build, parts

    @property
    def is_wanted(self) -> bool:
        """Whether the generic executable is still in use."""
        return not (self._compiler.is_closed or self._build.is_over) and self._build.find_target() is not None

    @property
    def is_due(self) -> bool:
        """Whether the generic executable has run often."""
        found = self._build.find_target()
        return found is not None and found[2].executable.runs_without_megakernel >= WORTH_RUNS

    def run(self) -> None:
        """See Job.run."""
        if not self.stops():
            compiler = self._compiler
            compiler.rt.programs.link_in_background(self._parts, lambda: compiler.is_closed or not is_main_alive())


class BackgroundCompiler:
    """The background jobs of one session, which one thread does one after another. Thread-safe.

    counts: of programs, by origin. swaps: executables that were replaced. gives_up: an optimized executable
    could not be made after the generic one was released. faults: why jobs failed.
    """

    def __init__(self, rt: Runtime, on_swap: Callable[[Executable, Executable], None]) -> None:
        """on_swap: called with the old and the new executable, between two runs; referenced weakly."""
        self.rt = rt
        self._queue = compile_queue(rt)
        self._on_swap = weakref.WeakMethod(on_swap)
        self._links: list[EarlyLinkJob] = []
        self.is_closed = False
        self.counts = ProgramCounts(in_background=True)
        self.swaps = 0
        self.gives_up = False
        self.faults: list[str] = []

    @property
    def jobs(self) -> list[CompileJob]:
        """The jobs that are not over."""
        return [job for job in self._queue.jobs(self) if isinstance(job, CompileJob)]

    def submit(self, *jobs: CompileJob) -> None:
        """Append jobs. Those for other models alone run last. After `close` they are dropped."""
        for job in jobs:
            job.compiler = self
            if self.is_closed:
                job.end()
            elif job.replaces and job.is_urgent and self.swaps == 0:
                job.delay(START_DELAY_S)
        if not self.is_closed:
            self._queue.submit(self, *jobs)

    def link_early(self, build: CompileJob, parts: Sequence[Part]) -> None:
        """Link the megakernel of the executable that `build` makes, concurrently with the other jobs."""
        link = EarlyLinkJob(self, build, parts)
        self._links.append(link)
        self._queue.submit(link, link)

    @property
    def is_linking(self) -> bool:
        """Whether a megakernel is linked or waits for runs."""
        return any(not link.is_over for link in self._links)

    def report_swap(self, old: Executable, new: Executable) -> None:
        """Count a replaced executable, and notify the session."""
        self.swaps += 1
        on_swap = self._on_swap()
        if on_swap is not None:
            on_swap(old, new)

    def drop(self) -> None:
        """End all jobs."""
        self._queue.drop(self)

    def close(self) -> None:
        """End all jobs, and accept no more."""
        if not is_child():
            self.is_closed = True
            self.drop()


def describe_error(error: Exception) -> str:
    """The message of an error, after the name of its class if that is not Opalite's own."""
    return str(error) if isinstance(error, OpaliteError) else f"{type(error).__name__}: {error}"
