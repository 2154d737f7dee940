"""Phases: the steps of a Program in the order they are run, all launches between two of another kind put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from ...cl.queue.event_times import LaunchTimes
from ...cl.queue.prepared_launch import LaunchSequence, PreparedLaunch
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
class Prepared:
    """A Program with its memory and launches on a device: what every strategy runs.

    outline: of the program. launches: by number of their step, arguments set. run_on_host: runs one operator on what
    the host has by slot.
    """

    rt: Runtime
    program: Program
    schedule: StepSchedule
    io: IoTransfer
    launches: Mapping[int, PreparedLaunch]
    run_on_host: Callable[[HostStep | ReferenceStep, list[Any]], None]

    @cached_property
    def launch_count(self) -> int:
        """Launches that compute anything."""
        steps = self.program.steps
        return sum(0 not in steps[i].grid for i in self.schedule.slots)  # type: ignore[union-attr]


def make_phases(
    prepared: Prepared,
    replacements: Mapping[int, Sequence[PreparedLaunch]] | None = None,
    loop: HostThreadLoop | None = None,
    replay: bool = False,
) -> list[Phase]:
    """Steps in order. What needs no launch goes before all, and what no launch needs after all.

    joined: what is launched for a step in place of its own launch. loop: stands for all launches. replay: whether
    recordings are replayed from the second run on.
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
