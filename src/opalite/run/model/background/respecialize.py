"""Respecializer: makes a plan for sizes that come back and are far from those that the present plan was made for.

respecialize_policy.py decides when. The new plan is made in the background, while runs use the present one: planned for
the sizes at hand, built at low priority, then timed against the present plan between two runs. If it is faster, it
serves all sizes nearer to its own from the next run on, and is stored for other processes. Otherwise it is dropped.
The job is delayed while threads wait for each other, because planning takes the interpreter and timing the run lock.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np

from ....errors import OpaliteError
from ....plan.program import LaunchStep, Program
from ...execute.ab_timing import least_interleaved_seconds
from ...execute.kernel_arguments import draws
from ..executable_cache import Compiled, ExecutableCache
from ..run_lock import RunLock
from .background_compile import CompileJob, Task, describe_error
from .respecialize_policy import Sizes

if TYPE_CHECKING:
    from ...execute.executable import Executable

_log = logging.getLogger(__name__)

FASTER = 0.95
"""Part of the present plan's time that a run may take at most, to be worth its memory."""

ROUNDS, MOST_S = 9, 0.5
"""Limits of the timing: runs of each plan, and seconds of all."""

MAX_DELAY_S = 10.0
"""Longest delay while threads wait for each other."""
PAUSE_S = 0.1
"""Pause between two timed runs while threads wait for each other: of hundred runs of theirs fewer than one waits."""

LARGEST = 128 << 20
"""Bytes of weights up to which they may be on the device twice, for the kernels of two plans."""


class Respecializer(CompileJob):
    """The job that makes and times the plan. Only `settle` waits for it."""

    def __init__(
        self, prepare: Callable[[], tuple[Program, Task] | None], lock: RunLock, forget: Callable[[], None] | None
    ) -> None:
        """Delay the job while threads wait for each other, at most MAX_DELAY_S seconds.

        prepare: plans (`Compiler.prepare`). forget: removes the plan
        that was stored for other processes, if one was.
        """
        super().__init__(self._begin)
        self._prepare, self._lock, self._forget = prepare, lock, forget or (lambda: None)
        self._sizes: Sizes = ()
        self._latest = time.monotonic() + MAX_DELAY_S

    def set_base_plan(self, cache: ExecutableCache, key: Hashable, other: Compiled, sizes: Sizes) -> None:
        """Keep `other`, which runs of `sizes` use now, when the new plan is added."""
        self.set_target(cache, key, other)
        self._sizes = sizes

    replaces = False
    is_urgent = False

    @property
    def is_due(self) -> bool:
        """Whether threads have not waited for each other for a while, or the longest delay has passed."""
        return not self._lock.is_shared or time.monotonic() >= self._latest

    def make_due(self) -> None:
        """End the delay of the job."""
        self._latest = 0.0

    def _begin(self) -> Task:
        found = self.find_target()
        now = None if found is None else found[2].at(self._sizes)
        if found is None or now is None or draws(now.program) or _weight_bytes(found[2].executable) > LARGEST:
            return Task(())
        prepared = self._prepare()
        if prepared is None:
            return Task(())
        program, task = prepared
        if same_launches(program, now.program):
            self._notify_none("has the same kernels")
            return Task(())
        return task

    def install(self, made: Compiled) -> Compiled | None:
        """Time the new plan and the present one, and add the new one if it is faster. Nothing is replaced."""
        place = self.find_target()
        if place is None:
            self._forget()
            return None
        cache, key, other = place
        try:
            new_s, old_s = self._measure(made, other)
        except OpaliteError as e:  # such as zeros that a host operator rejects
            self._forget()
            self._notify_none(f"cannot be measured ({e.message})")
            return None
        times = f"{1e3 * new_s:.3g} ms a run, the other {1e3 * old_s:.3g}"
        if new_s > FASTER * old_s:
            self._forget()
            self._notify_none(f"is no faster: {times}")
            return None
        made.notes = (*made.notes, f"plan: made in the background for sizes that came back; measured there: {times}")
        cache.add_respecialized(key, made)
        return None

    def fail(self, error: Exception) -> None:
        """Note the failure with the present plan. Runs continue with the present plan, so there is no warning."""
        self.fault = describe_error(error)
        self._forget()
        self._notify_none(f"cannot be made ({self.fault})")

    def _notify_none(self, why: str) -> None:
        place = self.find_target()
        if place is not None:
            sizes = ", ".join(f"s{i}={size}" for i, size in enumerate(self._sizes))
            place[2].notes = (*place[2].notes, f"plan: one made in the background for {sizes} {why}")

    def _measure(self, made: Compiled, other: Compiled) -> tuple[float, float]:
        """The least seconds of a run of each, alternating with each other and with the session's runs."""
        new, old = self._timed(made), self._timed(other)
        new(), old()
        return least_interleaved_seconds(new, old, rounds=ROUNDS, most_s=MOST_S)

    def _timed(self, compiled: Compiled) -> Callable[[], float]:
        """A function that runs it once, on zeros, and returns the seconds. No megakernel: that takes many runs."""
        found = compiled.at(self._sizes)
        if found is None:
            raise OpaliteError("the plan does not serve these sizes")
        program, held = found.program, weakref.ref(compiled.executable)
        feeds = [np.zeros(p.shape, p.dtype.np) for p in program.inputs]

        def run() -> float:
            if self.is_over:
                raise OpaliteError("the session was closed")
            executable = held()
            if executable is None:
                raise OpaliteError("an executable was released")
            with self._lock.exclusive(), executable.entered(program) as is_there:
                if not is_there:
                    raise OpaliteError("an executable was released")
                started = time.perf_counter()
                executable.run(feeds, uses_megakernel=False)
                spent = time.perf_counter() - started
            time.sleep(PAUSE_S if self._lock.is_shared else min(spent, 0.02))  # runs of the session go first
            return spent

        return run


def same_launches(a: Program, b: Program) -> bool:
    """Whether two programs run the same kernels on the same grids."""

    def launches(program: Program) -> list[object]:
        steps = (s for s in program.steps if isinstance(s, LaunchStep))
        return [(s.entry, program.sources[s.source].parts[:2], s.grid, s.group) for s in steps]

    return launches(a) == launches(b)


def _weight_bytes(executable: Executable) -> int:
    return sum(executable.memory.weight_bytes.values())
