"""RunTrace: what one run did: its seconds by part, strategy, bytes transferred, and waits."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...lazy_dataclass import dataclass

if TYPE_CHECKING:
    from ...plan.program import NodeReport, Program
    from .executable import Executable

SECONDS = ("import_s", "tune_s", "build_s", "upload_s", "compute_s", "download_s", "host_s")
COUNTS = ("launches", "bytes_up", "bytes_down", "waits")


@dataclass
class Timing:
    """Seconds of one `run`: import and planning, tuning, program builds, transfers, compute, host operators, total."""

    import_s: float = 0.0
    tune_s: float = 0.0
    build_s: float = 0.0
    upload_s: float = 0.0
    compute_s: float = 0.0
    download_s: float = 0.0
    host_s: float = 0.0
    total_s: float = 0.0
    first_s: float = 0.0  # total of the session's first run, loading included


class RunRecord:
    """The programs that a run used, and the host steps between them.

    executables: in the order they ran, each as often as it ran. programs: the program that each ran. items: programs
    and reports of host steps, each once. notes: sentences on how they were compiled. route: of runs like this one
    (run/model/route.py), if there is one.
    """

    __slots__ = ("_seen", "executables", "items", "notes", "programs", "route")

    def __init__(self) -> None:
        self.executables: list[Executable] = []
        self.programs: list[Program] = []
        self.items: list[Program | NodeReport] = []
        self.notes: list[str] = []
        self.route: Any = None
        self._seen: set[Any] = set()

    def replace(self, old: Executable, new: Executable) -> None:
        """Reference `new` in place of `old`, so that `old` can be freed."""
        if old in self.executables:
            pairs = zip(self.executables, self.programs, strict=True)
            self.programs = [new.program if e is old else program for e, program in pairs]
            self.executables = [new if e is old else e for e in self.executables]
            self.items = [new.program if i is old.program else i for i in self.items]
            self.route = None

    def forget(self, replica: Executable, executable: Executable) -> None:
        """Reference the executable in place of its replica."""
        if replica in self.executables:
            self.executables = [executable if e is replica else e for e in self.executables]

    def add(self, executable: Executable) -> None:
        """Record that an executable has run."""
        self.executables.append(executable)
        self.programs.append(executable.program)
        self._keep(id(executable.program), executable.program)

    def add_host(self, report: NodeReport) -> None:
        """Record a host step between two programs."""
        self._keep((report.name, report.op, report.why), report)

    def note(self, *notes: str) -> None:
        """Add sentences that are not there yet."""
        for n in notes:
            if n not in self.notes:
                self.notes.append(n)

    def _keep(self, key: Any, item: Program | NodeReport) -> None:
        if key not in self._seen:
            self._seen.add(key)
            self.items.append(item)


@dataclass
class RunTrace(Timing):
    """A run's seconds and counts.

    strategy: the name of a Strategy (execute/strategies/strategy.py), or several joined by '+' if the parts of a model
    took different ones. 'host' if no program ran, 'process' if another process ran the model after this one had lost
    its device.

    tier: 'optimized', programs made for the model's nodes, or 'generic', programs that serve any model until those are
    built (docs/tiers.md); joined likewise.

    launches: kernels of the programs that ran, however they reached the device. bytes_up, bytes_down: bytes transferred
    to and from the device. waits: how often the host waited for the device. runs: number of runs. overflowed: fp16
    could not represent a value of this run, so that float32 took over.
    """

    strategy: str = ""
    tier: str = ""
    launches: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    waits: int = 0
    overflowed: bool = False
    runs: int = 1
    run_record: RunRecord | None = field(default=None, repr=False, compare=False)

    @property
    def executables(self) -> list[Executable]:
        """The executables in the order they ran."""
        return [] if self.run_record is None else self.run_record.executables

    def add(self, other: RunTrace) -> None:
        """Add the seconds and counts of a part of the run."""
        # By name: a loop over the names takes 6 us of a run of 60 us.
        self.import_s += other.import_s
        self.tune_s += other.tune_s
        self.build_s += other.build_s
        self.upload_s += other.upload_s
        self.compute_s += other.compute_s
        self.download_s += other.download_s
        self.host_s += other.host_s
        self.launches += other.launches
        self.bytes_up += other.bytes_up
        self.bytes_down += other.bytes_down
        self.waits += other.waits
        self.strategy = _join_words(self.strategy, other.strategy)
        self.tier = _join_words(self.tier, other.tier)

    def to_raw(self) -> dict[str, Any]:
        """The JSON form: seconds by part, and the counts."""
        names = (*SECONDS, "total_s", "first_s", *COUNTS, "overflowed")
        return {"strategy": self.strategy or "host", "tier": self.tier, **{name: getattr(self, name) for name in names}}


def _join_words(words: str, more: str) -> str:
    """Words joined by '+', with those of `more` that are new."""
    if words == more or not more:
        return words
    if not words and "+" not in more:
        return more
    return "+".join(dict.fromkeys(w for w in (*words.split("+"), *more.split("+")) if w))
