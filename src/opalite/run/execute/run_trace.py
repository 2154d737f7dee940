"""RunTrace: what one run did - where its time went, by which strategy, what crossed, how often the host waited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...plan.node_report import NodeReport
    from ...plan.program import Program
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


class Ran:
    """The programs that a run used, and what the host did between them.

    executables: in the order they ran, one as often as it ran. items: programs and reports of host steps, each once.
    notes: sentences on how they came to be what they are. steady: how runs like this one go without a look at the
    model (run/model/repeat_run_fast_path.py), where that is known.
    """

    __slots__ = ("_seen", "executables", "items", "notes", "steady")

    def __init__(self) -> None:
        self.executables: list[Executable] = []
        self.items: list[Program | NodeReport] = []
        self.notes: list[str] = []
        self.steady: Any = None
        self._seen: set[Any] = set()

    def replace(self, old: Executable, new: Executable) -> None:
        """Another executable has taken the place of one, so that nothing of that need be held."""
        if old in self.executables:
            self.executables = [new if e is old else e for e in self.executables]
            self.items = [new.program if i is old.program else i for i in self.items]
            self.steady = None

    def forget(self, twin: Executable, executable: Executable) -> None:
        """Hold the executable in the place of its twin."""
        if twin in self.executables:
            self.executables = [executable if e is twin else e for e in self.executables]

    def add(self, executable: Executable) -> None:
        """An executable has run."""
        self.executables.append(executable)
        self._keep(id(executable.program), executable.program)

    def add_host(self, report: NodeReport) -> None:
        """The host has done something between two programs."""
        self._keep((report.name, report.op, report.why), report)

    def note(self, *notes: str) -> None:
        """Take sentences that are not there yet."""
        for n in notes:
            if n not in self.notes:
                self.notes.append(n)

    def _keep(self, key: Any, item: Program | NodeReport) -> None:
        if key not in self._seen:
            self._seen.add(key)
            self.items.append(item)


@dataclass
class RunTrace(Timing):
    """A run's seconds, and what it did.

    strategy: 'queue', 'replay', 'loop', 'repeat', 'trips' or 'persistent' (execute/strategies/strategy.py), joined by
    '+' where
        the parts of a model went different ways; 'host' where no program ran, 'process' where another process ran the
        model after this one had lost its device.
    tier: 'optimized', programs made for the model's nodes, or 'generic', ones that serve any model until those are
        built (docs/tiers.md); joined likewise.
    launches: kernels of the programs that ran, however they reached the device.
    bytes_up, bytes_down: what crossed between host and device. waits: how often the host waited for the device.
    runs: how many runs these are. overflowed: whether half could not hold a value of this run, so that float32 took
        over.
    """

    strategy: str = ""
    tier: str = ""
    launches: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    waits: int = 0
    overflowed: bool = False
    runs: int = 1
    ran: Ran | None = field(default=None, repr=False, compare=False)

    @property
    def executables(self) -> list[Executable]:
        """The executables in the order they ran."""
        return [] if self.ran is None else self.ran.executables

    def add(self, other: RunTrace) -> None:
        """Add what a part of the run took and did."""
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
        """As JSON holds it: seconds by part, and the counts."""
        names = (*SECONDS, "total_s", "first_s", *COUNTS, "overflowed")
        return {"strategy": self.strategy or "host", "tier": self.tier, **{name: getattr(self, name) for name in names}}


def _join_words(words: str, more: str) -> str:
    """Words joined by '+', with those of `more` that are new."""
    if words == more or not more:
        return words
    if not words and "+" not in more:
        return more
    return "+".join(dict.fromkeys(w for w in (*words.split("+"), *more.split("+")) if w))
