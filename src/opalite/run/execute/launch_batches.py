"""Phases: the steps of a Program in the order they run, launches between two other steps combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...cl.queue.event_times import LaunchTimes
from ...cl.queue.launch_sequence import LaunchSequence
from ...cl.queue.prepared_launch import PreparedLaunch
from ...plan.program import DownloadStep, HostStep, LaunchStep, ReferenceStep, UploadStep
from ...pocl.megakernel.host_thread_loop import HostThreadLoop

if TYPE_CHECKING:
    from .shape_instance import ShapeInstance

Phase: TypeAlias = "LaunchSequence | HostThreadLoop | UploadStep | DownloadStep | HostStep | ReferenceStep"
"""A step, or all the launches between two steps of another kind."""

Recorder: TypeAlias = Callable[[LaunchStep, LaunchTimes], None]
"""Called with the LaunchStep and the times of each launch of a profiled run."""


Replacements: TypeAlias = Mapping[int, Sequence[PreparedLaunch]]
"""Launches that replace those of steps, by number of the step."""


def make_phases(
    instance: ShapeInstance,
    replaced: Replacements | None = None,
    loop: HostThreadLoop | None = None,
    replay: bool = False,
) -> list[Phase]:
    """The phases in order: steps before all launches, launches and other steps, and steps after all launches.

    loop: replaces all launches. replay: whether launches are replayed from the second run on.
    """
    steps, schedule, launches = instance.program.steps, instance.schedule, instance.launches
    instead = replaced or {}
    phases: list[Phase] = [steps[i] for i in schedule.first]  # type: ignore[misc]
    waiting: list[PreparedLaunch] = []

    def add_waiting() -> None:
        if waiting and loop is not None:
            phases.append(loop)
        elif waiting:
            phases.append(instance.rt.record(list(waiting), replay=replay))
        waiting.clear()

    for i in schedule.middle:
        step = steps[i]
        if isinstance(step, LaunchStep):
            waiting.extend(instead[i] if i in instead else [launches[i]])
        else:
            add_waiting()
            phases.append(step)
    add_waiting()
    return [*phases, *(steps[i] for i in schedule.last)]  # type: ignore[list-item]
