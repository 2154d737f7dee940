"""Phases: the steps of a Program in the order they run, launches between two other steps combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from ...cl.queue.event_times import LaunchTimes
from ...cl.queue.launch_sequence import LaunchSequence
from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.runtime import Runtime
from ...plan.program import DownloadStep, HostStep, LaunchStep, Program, ReferenceStep, UploadStep
from ...pocl.megakernel.host_thread_loop import HostThreadLoop
from .memory.io_transfer import IoTransfer
from .step_schedule import StepSchedule

Phase: TypeAlias = "LaunchSequence | HostThreadLoop | UploadStep | DownloadStep | HostStep | ReferenceStep"
"""A step, or all the launches between two steps of another kind."""

Recorder: TypeAlias = Callable[[LaunchStep, LaunchTimes], None]
"""Called with the LaunchStep and the times of each launch of a profiled run."""


@dataclass(frozen=True)
class LoadedProgram:
    """A Program with its memory and launches on a device: the input of every strategy.

    schedule: of the program. io: its transfers and bindings. launches: by number of their step, arguments set.
    run_on_host: runs one host operator on the values by slot.
    """

    rt: Runtime
    program: Program
    schedule: StepSchedule
    io: IoTransfer
    launches: Mapping[int, PreparedLaunch]
    run_on_host: Callable[[HostStep | ReferenceStep, list[Any]], None]

    @cached_property
    def launch_count(self) -> int:
        """The number of launches whose grid is not empty."""
        steps = self.program.steps
        return sum(0 not in steps[i].grid for i in self.schedule.slots)  # type: ignore[union-attr]


def make_phases(
    prepared: LoadedProgram,
    replacements: Mapping[int, Sequence[PreparedLaunch]] | None = None,
    loop: HostThreadLoop | None = None,
    replay: bool = False,
) -> list[Phase]:
    """The phases in order: steps before all launches, launches and other steps, and steps after all launches.

    replacements: launches that replace a step's own launch. loop: replaces all launches. replay: whether launches are
    replayed from the second run on.
    """
    steps, schedule = prepared.program.steps, prepared.schedule
    instead = replacements or {}
    phases: list[Phase] = [steps[i] for i in schedule.first]  # type: ignore[misc]
    waiting: list[PreparedLaunch] = []

    def add_waiting() -> None:
        if waiting and loop is not None:
            phases.append(loop)
        elif waiting:
            recording = prepared.rt.record(list(waiting), replay=replay)
            prepared.io.recordings.append(recording)
            phases.append(recording)
        waiting.clear()

    for i in schedule.middle:
        step = steps[i]
        if isinstance(step, LaunchStep):
            waiting.extend(instead[i] if i in instead else [prepared.launches[i]])
        else:
            add_waiting()
            phases.append(step)
    add_waiting()
    return [*phases, *(steps[i] for i in schedule.last)]  # type: ignore[list-item]
