"""RunRequest: the parameters of a run besides its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from ...lazy_dataclass import dataclass
from ..execute.memory.io_transfer import Target
from ..execute.step_schedule import Recorder
from .run_lock import RunLock

if TYPE_CHECKING:
    from ...importer import Segment, Task
    from ...plan.program import Program
    from ...tune.tuner import Progress
    from ...tune.tuning_report import GraphTuning


@dataclass(frozen=True)
class TuneRequest:
    """Whether graphs planned for this run are tuned first.

    level: 'none' to 'exhaustive'; '' takes the session's level. resumes: continue the search on a graph that an earlier
    search has left unfinished. on_trial: called after every trial. on_report: called with the report of each tuned
    graph, before the search fills it.
    """

    level: str = ""
    resumes: bool = False
    on_trial: Callable[[Progress], None] | None = None
    on_report: Callable[[GraphTuning], None] | None = None


AS_OPENED = TuneRequest()


class RunObserver(Protocol):
    """An observer of what a run of an imported model consists of."""

    def segment(self, segment: Segment, sizes: tuple[int, ...], program: Program, loop: str) -> None:
        """Called when the program of a segment has run. loop: the label of the loop whose body it is; '' outside."""

    def probe(self, segment: Segment) -> None:
        """Called for a segment that the host evaluates, because a branch or a shape depends on its results."""

    def task(self, task: Task, begin: float, end: float) -> None:
        """Called after a task of the host between two segments, with the seconds of its clock before and after."""


@dataclass(frozen=True)
class RunRequest:
    """The parameters of a run.

    targets: by output name, the function that gives the device tensor for an output that stays on the device. recorder:
    called with the times of every launch. check: called between segments; it raises if the run was terminated.
    is_trial: the outputs are only compared, so that an overflow does not change the session's precision. waits: wait
    for the optimized programs. lock: of the session's runs; None if there are no others. unread: names of outputs that
    nobody reads; their values are undefined. observer: of the segments of the model, which is imported for it.
    """

    targets: Mapping[str, Target] = field(default_factory=dict)
    recorder: Recorder | None = None
    check: Callable[[], None] | None = None
    tuning: TuneRequest = AS_OPENED
    is_trial: bool = False
    waits: bool = False
    lock: RunLock | None = None
    unread: frozenset[str] = frozenset()
    observer: RunObserver | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a cached route may serve the run: nothing is recorded, tuned, compared or waited for."""
        return not (self.recorder or self.tuning.level or self.waits or self.is_trial or self.observer)


PLAIN = RunRequest()


def targets_by_number(outputs: Iterable[tuple[str, int]], targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of a program's output, for outputs all of whose names are in `targets`."""
    names: dict[int, list[str]] = {}
    for name, number in outputs:
        names.setdefault(number, []).append(name)
    return {number: targets[own[0]] for number, own in names.items() if all(n in targets for n in own)}
