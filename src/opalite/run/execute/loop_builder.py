"""All launches of a run as one, on a device where that pays: decided, built in the background, and put in place.

A Program is run by launches at first. Once it has been run often, a worker process links its kernels into the program
of a step loop (plan/step_text.py); from then on each stretch of launches is one (step_loop.py). What cannot be a
step stays a launch between two loops. A thread sees to all of that, so that no run waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ... import knobs
from ...cl.launch import PreparedLaunch
from ...cl.runtime import Runtime
from ...errors import OpaliteError
from ...ir.device_family import FRAGILE_COMPILER
from ...plan.program import LaunchStep, LocalArg, Program, ScalarArg, SlotArg
from ...plan.step_text import (
    CALL,
    CONTROL,
    LINE,
    SHAPE,
    TICKS,
    function_text,
    group_counts,
    loop_text,
    packed_scalar,
    part_count,
    signature,
    step_refusal,
)
from ...pocl.loop.host_loop import HostLoop, may_stay
from ...pocl.loop.step_loop import StepRow, StepTable
from .exchange import steps_outside
from .short_turns import short_turns

_log = logging.getLogger(__name__)

Loops: TypeAlias = "HostLoop | dict[int, list[PreparedLaunch]]"
"""One loop for all launches; or, by the number of a step, what is launched for it: the first of a stretch has the
stretch's loop, the others nothing."""

WORTH_RUNS = 20  # of a program, before it is linked: nobody need ask the builder earlier
MOST_FUNCTIONS = 150  # of one linked program, which is compiled by one process
SHORT_S = (
    4.5e-3  # of a run by its least time: the caller may be on a worker's core for some ms, so longer ones are launched
)
MOST_LOCAL = 1 << 18  # bytes of local memory of a work-group that a calling thread, whose stack it takes, is given


class LoopBuilder:
    """Has the step loop of a Program built in the background.

    `poll` is called before each run, from number WORTH_RUNS on, and returns the loops when they are ready, once.
    is_over: whether there is nothing to wait for any more.
    """

    def __init__(self, rt: Runtime, program: Program, memory: Mapping[int, Any]) -> None:
        self._rt, self._program, self._memory = rt, program, memory
        self._thread: threading.Thread | None = None
        self._loops: Loops | None = None
        self._steps = [s for s in program.steps if isinstance(s, LaunchStep) and all(s.grid)] if is_worth(rt) else []
        self.is_over = not self._steps

    def poll(self, hold: Callable[[Mapping[int, Any]], Mapping[int, Any]]) -> Loops | None:
        """What to run in place of launches from now on; None while nothing is ready.

        hold: gives the memory by slot that the loops are to use, from the program's own; asked once, by the first poll.
        """
        if self.is_over:
            return None
        if self._thread is None:
            self._memory = hold(self._memory)
            self._thread = threading.Thread(target=self._build, name="opalite-link", daemon=True)
            self._thread.start()
        if self._thread.is_alive():
            return None
        self.is_over = True
        found, self._loops = self._loops, None
        return found

    def _build(self) -> None:
        """What the thread does."""
        try:
            with short_turns():
                self._plan()
            linked = self._link()
            if linked is not None:
                with short_turns():
                    self._loops = self._make_loops(linked)
        except OpaliteError as e:
            _log.warning("launches of %s are not joined: %s", self._program.name or "a model", e)

    def wait(self, timeout: float | None) -> bool:
        """Wait for the worker process, if it is at work; whether it is not any more."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _plan(self) -> None:
        """Which steps become functions, and the text of each."""
        sources = self._program.sources
        numbers: dict[tuple[object, ...], int] = {}
        texts: list[tuple[str, str]] = []
        self._function: dict[int, int] = {}
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
        self._stay_us = float(knobs.get("OPALITE_STAY_US"))
        is_whole = len(self._stretches) == 1 and len(self._stretches[0]) == len(self._steps)
        local = [sum(a.nbytes for a in s.args if isinstance(a, LocalArg)) for s in self._steps]
        is_short = least_seconds(self._steps, self._rt) < SHORT_S
        self._stays = is_whole and is_short and self._stay_us > 0 and may_stay(self._rt) and max(local) <= MOST_LOCAL
        if not is_whole:
            self._stretches = [stretch for stretch in self._stretches if len(stretch) > 1]
        sleeps = self._stays or FRAGILE_COMPILER not in self._rt.info.quirks
        self._parts = [(loop_text(len(texts), self._stays, self._rt.info.compute_units, sleeps), ""), *texts]

    def _link(self) -> Any:
        if 0 < len(self._parts) - 1 <= MOST_FUNCTIONS:
            return self._rt.programs.link(self._parts)
        return None

    def _make_loops(self, linked: Any) -> Loops | None:
        rows = [self._row(i) for stretch in self._stretches for i in stretch]
        label = f"steps of {self._program.name or 'the model'}"
        counters = LINE * (1 + part_count(self._rt.info.compute_units))
        table = StepTable(self._rt, linked, rows, SHAPE, counters, label)
        if self._stays:
            return table.stay(CONTROL, CALL, TICKS, 1e-6 * self._stay_us)
        found: dict[int, list[PreparedLaunch]] = {}
        first = 0
        for stretch in self._stretches:
            last = first + len(stretch)
            found[stretch[0]] = list(table.loop(first, last))
            found.update((i, []) for i in stretch[1:])
            first = last
        return found

    def _row(self, i: int) -> StepRow:
        step = self._program.steps[i]
        assert isinstance(step, LaunchStep)
        groups, items = group_counts(step)
        args = tuple(
            self._memory[a.slot]
            if isinstance(a, SlotArg)
            else packed_scalar(a.value)
            if isinstance(a, ScalarArg)
            else 0
            for a in step.args
        )
        return StepRow(self._function[i], groups, items, args)


def least_seconds(steps: Iterable[LaunchStep], rt: Runtime) -> float:
    """What `steps` take at least by their operations and the bytes that they move."""
    info = rt.info
    return sum(max(s.flops / info.peak_flops, s.nbytes / info.bandwidth) for s in steps)


def is_worth(rt: Runtime) -> bool:
    """Whether launches cost enough on this device, and its memory has addresses that kernels may pass on."""
    return bool(knobs.get("OPALITE_STEP_LOOP")) and rt.info.family == "pocl"


def _stretches(program: Program, functions: Mapping[int, int]) -> list[list[int]]:
    """Numbers of neighbouring steps that are functions; empty launches and what is moved away do not count."""
    moved = {id(s) for steps in steps_outside(program) for s in steps}
    found: list[list[int]] = [[]]
    for i, step in enumerate(program.steps):
        if i in functions:
            found[-1].append(i)
        elif id(step) not in moved and not (isinstance(step, LaunchStep) and not all(step.grid)):
            found.append([])
    return [stretch for stretch in found if stretch]
