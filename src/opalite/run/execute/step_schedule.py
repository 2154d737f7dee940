"""StepSchedule: the order of a program's steps, computed once for all of its shapes, as step numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...plan.program import DownloadStep, HostStep, LaunchStep, Program, ReferenceStep, SlotArg, Step, UploadStep


class StepSchedule:
    """The schedule of a program; all shapes have the same steps in number, order and kind.

    first, last: steps before and after all launches. middle: the others in order. io_steps: transfers in `first` and
    `last`. slots: used by each launch. uploads: those whose value is uploaded once. bindable: downloads of outputs that
    only launches write and the host does not read again, so that another buffer can be bound to them.
    """

    def __init__(self, program: Program) -> None:
        steps = program.steps
        self.first, self.last = steps_outside(program)
        moved = {*self.first, *self.last}
        self.middle = [i for i in range(len(steps)) if i not in moved]
        self.io_steps = [i for i in (*self.first, *self.last) if isinstance(steps[i], UploadStep | DownloadStep)]
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
