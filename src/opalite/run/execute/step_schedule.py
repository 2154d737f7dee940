"""The order of a program's steps: as step numbers for all of its shapes, and as phases, with launches combined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...cl.queue.event_times import LaunchTimes
from ...cl.queue.launch_sequence import LaunchSequence
from ...cl.queue.prepared_launch import PreparedLaunch
from ...plan.program import DownloadStep, HostStep, LaunchStep, Program, ReferenceStep, SlotArg, Step, UploadStep
from ...pocl.megakernel.host_thread_loop import HostThreadLoop

if TYPE_CHECKING:
    from .shape_instance import ShapeInstance

Phase: TypeAlias = "LaunchSequence | HostThreadLoop | UploadStep | DownloadStep | HostStep | ReferenceStep"
"""A step, or all the launches between two steps of another kind."""

Recorder: TypeAlias = Callable[[Step, LaunchTimes], None]
"""Called with each step of a profiled run and its times, in seconds of the host's clock: the device's clock is set by
the moment at which the first of several launches was enqueued.
"""


Replacements: TypeAlias = Mapping[int, Sequence[PreparedLaunch]]
"""Launches that replace those of steps, by number of the step."""


class StepSchedule:
    """The schedule of a program; all shapes have the same steps in number, order and kind.

    first, last: steps before and after all launches. middle: the others in order. slots: used by each launch. uploads:
    those whose value is uploaded once. bindable: downloads of outputs that only launches write and the host does not
    read again, so that another buffer can be bound to them.
    """

    def __init__(self, program: Program) -> None:
        steps = program.steps
        self.first, self.last = steps_outside(program)
        moved = {*self.first, *self.last}
        self.middle = [i for i in range(len(steps)) if i not in moved]
        self.slots = {
            i: frozenset(a.slot for a in s.args if isinstance(a, SlotArg))
            for i, s in enumerate(steps)
            if isinstance(s, LaunchStep)
        }
        uploads = {i: s for i, s in enumerate(steps) if isinstance(s, UploadStep)}
        downloads = {i: s for i, s in enumerate(steps) if isinstance(s, DownloadStep)}
        sources = Counter(s.host for s in uploads.values())
        times = Counter(s.slot for s in downloads.values())
        uploaded = {s.slot for s in uploads.values()}
        made = frozenset[int]().union(*self.slots.values())
        on_host = _read_on_host(steps)
        self.uploads = [i for i, s in uploads.items() if sources[s.host] == 1]
        self.bindable = [
            i
            for i, s in downloads.items()
            if s.slot in made and s.slot not in uploaded and times[s.slot] == 1 and s.host not in on_host
        ]


def _read_on_host(steps: Sequence[Step]) -> set[int]:
    """Host slots that host operators read."""
    return {n for s in steps if isinstance(s, HostStep | ReferenceStep) for n in s.inputs}


def steps_outside(program: Program) -> tuple[list[int], list[int]]:
    """Numbers of the steps that may run before all launches, and of those that may run after them.

    Before: uploads of inputs and constants, and host operators that read nothing else. After: downloads that no other
    step reads, and host operators whose results no launch reads. Slots of inputs and outputs are not reused, and a
    number on the host stands for one value.
    """
    at_hand = {-1} | {p.host for p in program.inputs} | program.host_consts.keys()
    first: list[int] = []
    for i, s in enumerate(program.steps):
        if isinstance(s, UploadStep):
            if s.host in at_hand:
                first.append(i)
        elif isinstance(s, HostStep | ReferenceStep) and at_hand.issuperset(s.inputs):
            first.append(i)
            at_hand.update(s.outputs)
    moved = set(first)
    wanted: set[int] = set()  # by steps that stay
    last: list[int] = []
    for i, s in reversed(list(enumerate(program.steps))):
        if i in moved:
            continue
        if isinstance(s, DownloadStep):
            if s.host not in wanted:
                last.append(i)
        elif isinstance(s, UploadStep):
            wanted.add(s.host)
        elif isinstance(s, HostStep | ReferenceStep):
            if wanted.isdisjoint(s.outputs):
                last.append(i)
            else:
                wanted.update(s.inputs)
    return first, last[::-1]


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
