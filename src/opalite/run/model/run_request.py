"""RunRequest: what a run is asked beside its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..execute.launch_batches import Recorder
from ..execute.memory.io_transfer import Target
from .run_lock import RunLock

if TYPE_CHECKING:
    from ...tune.tuner import Progress
    from ...tune.tuning_report import GraphTuning


@dataclass(frozen=True)
class TuneRequest:
    """Whether graphs that this run plans are tuned first.

    level: 'none' to 'exhaustive'; '' is what the session was opened with. resumes: search a graph that was tuned
    already for what its budget left out. watch: told of every trial. tell: given the report on each graph that is
    tuned, before the search fills it.
    """

    level: str = ""
    resumes: bool = False
    watch: Callable[[Progress], None] | None = None
    tell: Callable[[GraphTuning], None] | None = None


AS_OPENED = TuneRequest()


@dataclass(frozen=True)
class RunRequest:
    """targets: outputs by name that should stay on the device, and what gives their tensors. recorder: told of the
    times of every launch. check: asked between segments, raises if the run is called off. is_trial: what is computed is
    only to be compared, so that overflow is no news. waits: go through specialised programs, however long they take to
    build. lock: what runs of the session take in turn; None where there are no others. unread: outputs by name that
    nobody reads, which may come as whatever stands for them.
    """

    targets: Mapping[str, Target] = field(default_factory=dict)
    recorder: Recorder | None = None
    check: Callable[[], None] | None = None
    tuning: TuneRequest = AS_OPENED
    is_trial: bool = False
    waits: bool = False
    lock: RunLock | None = None
    unread: frozenset[str] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Whether a cached route may serve the run: nothing is recorded, tuned, compared or waited for."""
        return not (self.recorder or self.tuning.level or self.waits or self.is_trial)


PLAIN = RunRequest()


def targets_by_number(outputs: Iterable[tuple[str, int]], targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of a program's output, for outputs all of whose names are in `targets`."""
    names: dict[int, list[str]] = {}
    for name, number in outputs:
        names.setdefault(number, []).append(name)
    return {number: targets[own[0]] for number, own in names.items() if all(n in targets for n in own)}
