"""StepSchedule: how the steps of a program follow each other, worked out once for all sizes of it, by their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...plan.program import DownloadStep, HostStep, LaunchStep, Program, ReferenceStep, SlotArg, Step, UploadStep


class StepSchedule:
    """What holds for every size of a program, whose steps are the same in number, order and kind.

    first, last: steps that go before all launches, and after them. middle: the others in order. crossed: transfers in
    `first` and `last`. uploads: of what is uploaded once. keepable: downloads of what launches alone write and the host
    does not read again. slots: of each launch.
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
    """Host slots that operators on the host read."""
    return {n for s in steps if isinstance(s, HostStep | ReferenceStep) for n in s.inputs}


def steps_outside(program: Program) -> tuple[list[int], list[int]]:
    """Numbers of what may go before all launches, and of what after them, so that those stay in one stretch.

    Before: uploads of what the host has from the start, and operators on the host that read nothing else. After:
    downloads that no other step reads, and operators on the host whose results no launch wants. Slots of inputs and
    outputs are nobody else's, and a number on the host stands for one value.
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
