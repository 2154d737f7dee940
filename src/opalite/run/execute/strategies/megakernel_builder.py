"""MegakernelBuilder: joins all launches of a run into one kernel, in the background, on devices where that pays.

A Program runs with single launches first. After many runs, a worker process links its kernels into one program
(plan/megakernel_source.py); from then on each stretch of neighbouring launches is one launch (device_loop.py). Steps
that cannot be functions remain launches. A background job does all of that, so that no run waits. What it found is
stored: the first run of a later process takes the megakernel that the cache has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from .... import knobs
from ....cl.memory.staging_buffer import StagingBuffer
from ....cl.programs.background_throttle import background_planning
from ....cl.programs.program_cache import Part
from ....cl.queue.prepared_launch import PreparedLaunch
from ....cl.runtime import Runtime
from ....plan.megakernel_source import (
    CALL,
    CONTROL,
    TICKS,
    function_text,
    is_single,
    loop_text,
    part_count,
    signature,
    step_refusal,
)
from ....plan.program import LaunchStep, LocalArg, Program, Step
from ....pocl.megakernel.device_loop import BufferAddresses, DeviceStepTable, make_host_thread_loop
from ....pocl.megakernel.host_thread_loop import HostThreadLoop, StepArrays, supports_host_loop
from ..compile_queue import Job, compile_queue
from ..kernel_arguments import draws
from ..shape_instance import least_seconds
from ..step_schedule import steps_outside
from .megakernel_tables import Locate, MegakernelTables
from .stored_decision import VALID_RUNS, Decision, decision_key, find_decision, keep_decision

_log = logging.getLogger(__name__)

WORTH_RUNS = 20  # of a program, before it is linked
MOST_FUNCTIONS = 150  # of one linked program, which one process compiles
SHORT_S = 4.5e-3
"""Least seconds of runs that the calling thread does not execute: it may share a worker's core for milliseconds."""
STILL_SHORT_S = 4 * SHORT_S  # as SHORT_S, for shapes that an existing megakernel serves
_MOST_MEGAKERNELS = 4  # of one executable, for shapes whose steps become different functions
MOST_LOCAL = 1 << 18  # bytes of a work-group's local memory, which is on the calling thread's stack


class MegakernelBuilder:
    """Builds the megakernel of a Program in the background, for all shapes that it `serves`.

    `poll` is called before each run, by one thread or several, and returns the megakernel once it is ready. is_over:
    nothing is being built any more. is_idle: nor is there a megakernel.
    """

    def __init__(self, rt: Runtime, program: Program, constants: Sequence[Any] = ()) -> None:
        """constants: the buffers of the program's weights."""
        self._rt, self._program, self._constants = rt, program, constants
        self._key = ""  # of the stored decision
        self._function: dict[int, int] = {}  # by number of the step
        self._job: Job | None = None
        self._runs = 0
        self._made: BuiltMegakernel | None = None
        self._megakernel: BuiltMegakernel | None = None
        self._steps = _working_steps(program) if supports_megakernel(rt) else []
        self._is_short = least_seconds(self._steps, rt) < SHORT_S
        self._polling = threading.Lock()
        self.is_over = self.is_idle = not self._steps

    @property
    def built(self) -> BuiltMegakernel | None:
        """The megakernel that `poll` has returned."""
        return self._megakernel

    def serves(self, program: Program) -> bool:
        """Whether the steps of another shape become the same functions, executed in the same way."""
        if program is self._program or not self._steps:
            return True
        for mine, its in zip(self._program.steps, program.steps, strict=True):
            if mine is not its and not _is_alike(mine, its):
                return False
        most = STILL_SHORT_S if self._is_short else SHORT_S
        return self._is_short is (least_seconds(_working_steps(program), self._rt) < most)

    def count(self, runs: int) -> None:
        """Count runs that did not call `poll`."""
        if not self.is_over:
            with self._polling:
                self._runs += runs

    def poll(self) -> BuiltMegakernel | None:
        """The megakernel that replaces launches from now on; None while none is ready."""
        if self.is_over:
            return self._megakernel
        with self._polling:
            return self._poll()

    def _poll(self) -> BuiltMegakernel | None:
        if not self._key and self._restore():
            return self._finish()
        self._runs += 1
        if self._runs < WORTH_RUNS:
            return None
        if self._job is None:
            self._job = Job(self._build, self._log_failure)
            compile_queue(self._rt).submit(self._job, self._job)
        return self._finish() if self._job.is_over else None

    def _finish(self) -> BuiltMegakernel | None:
        self._megakernel = self._made
        self.is_idle = self._megakernel is None
        self.is_over = True
        return self._megakernel

    def _restore(self) -> bool:
        """Take the decision of an earlier process, if the cache has its program. Returns whether it has."""
        rt, spin_us = self._rt, float(knobs.get("OPALITE_SPIN_US"))
        device = rt.info.compute_units, supports_host_loop(rt), spin_us
        self._key = decision_key(rt, self._program, "megakernel", *device)
        decision = find_decision(rt, self._key)
        if decision is None:
            return False
        if decision["program"]:
            linked = rt.programs.load_linked(decision["program"])
            if linked is None:
                return False
            self._function = {int(step): number for step, number in decision["functions"].items()}
            self._stretches, self._stays, self._stay_us = decision["stretches"], decision["stays"], spin_us
            self._made = self._make_megakernel(linked, decision)
        return True

    def _build(self) -> None:
        """Link the kernels in a worker process. The work of the background job."""
        rt, decision = self._rt, Decision(program="")
        with background_planning():
            parts = self.plan()
        if parts:
            linked = rt.programs.link(parts)
            if linked is None:
                return
            key = rt.programs.linked_key(parts)
            decision.update(program=key, functions=self._function, stretches=self._stretches, stays=self._stays)
            with background_planning():
                self._made = self._make_megakernel(linked, decision)
        keep_decision(rt, self._key, decision)

    def _log_failure(self, error: Exception) -> None:
        _log.warning("launches of %s are not joined: %s", self._program.name or "a model", error)

    @property
    def jobs(self) -> list[Job]:
        """The background job, once it was submitted."""
        return [] if self._job is None else [self._job]

    def plan(self) -> Sequence[Part]:
        """Find the steps that become functions. Returns the parts to link, () for 0 or over MOST_FUNCTIONS."""
        sources = self._program.sources
        numbers: dict[tuple[object, ...], int] = {}
        texts: list[tuple[str, str]] = []
        for i, step in enumerate(self._program.steps):
            if not isinstance(step, LaunchStep) or not all(step.grid) or step_refusal(sources[step.source], step):
                continue
            key = signature(step)
            if key not in numbers:
                source = sources[step.source]
                texts.append((function_text(source.text, step, f"step_{len(numbers)}"), source.options))
                numbers[key] = len(numbers)
            self._function[i] = numbers[key]
        self._stretches = _stretches(self._program, self._function)
        is_whole = len(self._stretches) == 1 and len(self._stretches[0]) == len(self._steps)
        local = [sum(a.nbytes for a in s.args if isinstance(a, LocalArg)) for s in self._steps]
        self._stay_us = float(knobs.get("OPALITE_SPIN_US"))
        can_stay = self._stay_us > 0 and supports_host_loop(self._rt) and max(local) <= MOST_LOCAL
        self._stays = is_whole and self._is_short and can_stay
        if not is_whole:
            self._stretches = [stretch for stretch in self._stretches if len(stretch) > 1]
        if not 0 < len(texts) <= MOST_FUNCTIONS:
            return ()
        return [(loop_text(len(texts), self._stays, self._rt.info.compute_units), ""), *texts]

    def _make_megakernel(self, linked: Any, decision: Decision) -> BuiltMegakernel | None:
        label = f"steps of {self._program.name or 'the model'}"
        megakernel = BuiltMegakernel(self._rt, linked, self._function, self._stretches, self._constants, label)
        if not self._stays:
            return megakernel
        if not megakernel.add_host_thread(self._stay_us):
            return None
        assert megakernel.host_thread_loop is not None

        def keep(workers: bool) -> None:
            keep_decision(self._rt, self._key, {**decision, "workers": workers})

        megakernel.host_thread_loop.keep_workers(decision.get("workers"), VALID_RUNS, keep)
        return megakernel


class Megakernels:
    """The megakernels of an executable: shapes with the same functions share one. builders: of them."""

    def __init__(self, rt: Runtime, constants: Sequence[Any], may_build: bool) -> None:
        """constants: the buffers of the program's weights. may_build: False for none."""
        self._rt, self._constants, self._may_build = rt, constants, may_build
        self.builders: list[MegakernelBuilder] = []
        self._own: dict[BuiltMegakernel, BuiltMegakernel | None] | None = None  # of a replica, by the original

    def make_replica(self) -> Megakernels:
        """Megakernels for a replica of the executable, which the calling thread executes alone."""
        other = copy(self)
        other._own = {}
        return other

    def find_builder(self, program: Program) -> MegakernelBuilder:
        """The builder for `program`."""
        found = next((b for b in self.builders if b.serves(program)), None)
        if found is None:
            # A megakernel has constant arguments; those of random launches change in each run.
            builds = self._may_build and len(self.builders) < _MOST_MEGAKERNELS and not draws(program)
            found = MegakernelBuilder(self._rt, program if builds else Program(program.name), self._constants)
            if builds:
                self.builders.append(found)
        return found

    def poll(self, builder: MegakernelBuilder) -> BuiltMegakernel | None:
        """The builder's megakernel, once it is built."""
        megakernel = builder.poll()
        if megakernel is None or self._own is None:
            return megakernel
        if megakernel not in self._own:
            self._own[megakernel] = megakernel.make_replica()
        return self._own[megakernel]

    def forget_addresses(self) -> None:
        """Drop the addresses of memory that programs no longer have."""
        built = [b.built for b in self.builders] if self._own is None else self._own.values()
        for megakernel in built:
            if megakernel is not None:
                megakernel.forget_addresses()

    def release(self) -> None:
        """Drop all megakernels. Those of a replica's original stay."""
        self.builders, self._own = [], None if self._own is None else {}


def megakernel_parts(rt: Runtime, program: Program) -> Sequence[Part]:
    """The parts of which the megakernel of `program` is linked; none if launches stay single."""
    builder = MegakernelBuilder(rt, program)
    return () if builder.is_over or draws(program) else builder.plan()


class BuiltMegakernel:
    """The linked megakernel of a program: one loop for each stretch of launches, for one shape after another.

    host_thread_loop: replaces all launches if the calling thread executes them. launches: otherwise, by number of a
    step, the launches that replace it: the first step of a stretch has the stretch's loop, the others have none.
    """

    def __init__(
        self,
        rt: Runtime,
        linked: Any,
        functions: Mapping[int, int],
        stretches: Sequence[Sequence[int]],
        constants: Sequence[Any],
        label: str,
    ) -> None:
        """linked: the program. functions: of it, by number of a step. constants: memory that stays."""
        self._rt, self._linked, self._label = rt, linked, label
        self._functions, self._stretches = functions, stretches
        self._addresses = BufferAddresses(rt, linked, constants)
        self._tables: MegakernelTables | None = None
        self._table: DeviceStepTable | None = None
        self.host_thread_loop: HostThreadLoop | None = None
        self.launches: dict[int, list[PreparedLaunch]] = {}

    def add_host_thread(self, stay_us: float) -> bool:
        """Have the calling thread execute the one stretch, beside workers that stay `stay_us` microseconds.

        Returns whether it can.
        """
        given = (CONTROL, CALL, TICKS, 1e-6 * stay_us)
        self.host_thread_loop = make_host_thread_loop(self._rt, self._linked, self._addresses, *given, self._label)
        return self.host_thread_loop is not None

    def make_replica(self) -> BuiltMegakernel | None:
        """A megakernel on another executable's memory, which the calling thread executes alone.

        None if the device's threads execute it.
        """
        if self.host_thread_loop is None:
            return None
        other = copy(self)
        other._addresses = self._addresses.replica()
        other._tables = other._table = None
        other.host_thread_loop = self.host_thread_loop.single_threaded()
        return other

    def tables_for(self, program: Program, locate: Locate) -> StepArrays:
        """The step tables of `program`. locate: finds the memory of a slot."""
        if self._tables is None:
            numbers = [i for stretch in self._stretches for i in stretch]
            self._tables = MegakernelTables(program, numbers, self._functions, part_count(self._rt.info.compute_units))
        return self._tables.at(program, locate, self._addresses)

    def address_of(self, staging: StagingBuffer) -> int:
        """The address of a buffer, which remembers it."""
        if staging.device_address is None:
            staging.device_address = self._addresses.find([staging.buffer])[0]
        return staging.device_address

    @property
    def tables(self) -> MegakernelTables:
        """The positions of steps in the tables; after `tables_for`."""
        assert self._tables is not None
        return self._tables

    def use(self, rows: StepArrays) -> None:
        """Execute these steps from now on."""
        if self.host_thread_loop is not None:
            self.host_thread_loop.set_table(rows)
            return
        if self._table is None:
            self._table = DeviceStepTable(self._rt, self._linked, rows, self._label)
            first = 0
            for stretch in self._stretches:
                last = first + len(stretch)
                self.launches[stretch[0]] = list(self._table.loop(first, last))
                self.launches.update((i, []) for i in stretch[1:])
                first = last
        self._table.load(rows)

    def forget_addresses(self) -> None:
        """Drop the addresses of memory that programs no longer have."""
        self._addresses.drop_buffers()


def _working_steps(program: Program) -> list[LaunchStep]:
    return [s for s in program.steps if isinstance(s, LaunchStep) and 0 not in s.grid]


def _is_alike(mine: Step, its: Step) -> bool:
    """Whether a step becomes the same function for two shapes."""
    if not isinstance(mine, LaunchStep) or not isinstance(its, LaunchStep):
        return type(mine) is type(its)
    if (0 in mine.grid) is not (0 in its.grid):
        return False
    if mine.group != its.group and is_single(mine) is not is_single(its):
        return False
    return mine.args is its.args or [a.nbytes for a in mine.args if type(a) is LocalArg] == [
        a.nbytes for a in its.args if type(a) is LocalArg
    ]


def supports_megakernel(rt: Runtime) -> bool:
    """Whether launches cost enough on this device, and kernels may pass on its memory addresses."""
    return knobs.allows_strategy("megakernel") and rt.info.family == "pocl"


def _stretches(program: Program, functions: Mapping[int, int]) -> list[list[int]]:
    """Numbers of neighbouring steps that are functions. Empty launches and steps outside all launches are skipped."""
    moved = {i for numbers in steps_outside(program) for i in numbers}
    found: list[list[int]] = [[]]
    for i, step in enumerate(program.steps):
        if i in functions:
            found[-1].append(i)
        elif i not in moved and not (isinstance(step, LaunchStep) and not all(step.grid)):
            found.append([])
    return [stretch for stretch in found if stretch]
