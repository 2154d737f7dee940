"""Profile: the times of all launches of some runs, by node and by kernel, and the device's measured peaks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from ...cl.queue.event_times import LaunchTimes
from ...plan.program import LaunchStep


@dataclass(frozen=True)
class LaunchRecord:
    """One launch of one run. index: the position among the run's launches."""

    run: int
    index: int
    node: str
    kernel: str
    times: LaunchTimes
    flops: float
    nbytes: float


@dataclass(frozen=True)
class Row:
    """The launches of one node or kernel: number, median seconds, share of the device time and work per run."""

    name: str
    launches: int
    seconds: float
    share: float
    flops: float
    nbytes: float

    @property
    def gflops(self) -> float:
        """The GFLOP/s reached."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """The GB/s of necessary memory traffic."""
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0


@dataclass(frozen=True)
class Peaks:
    """Measured rates of a device: FLOP/s of multiply-adds, and bytes per second of copies."""

    flops: float
    bandwidth: float

    def attainable(self, flops: float, nbytes: float) -> float:
        """The minimum time of the work in the roofline model, in seconds."""
        return max(flops / self.flops, nbytes / self.bandwidth)


@dataclass
class Profile:
    """Records of several runs of one model on one device."""

    device: str
    records: list[LaunchRecord] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    peaks: Peaks | None = None
    queueing: list[str] = field(default_factory=list)  # sentences on the strategies of runs without profiling

    @property
    def runs(self) -> int:
        """The number of recorded runs."""
        return len({r.run for r in self.records})

    @property
    def device_s(self) -> float:
        """The median over runs of the total seconds of launches; 0 without launches."""
        return median(sum_by_run(self.records) or [0.0])

    def by_node(self) -> list[Row]:
        """One row for each launch of a run, in execution order."""
        return self._rows(lambda r: (r.index, r.node))

    def by_kernel(self) -> list[Row]:
        """One row for each kernel, the most expensive first."""
        return sorted(self._rows(lambda r: (0, r.kernel)), key=lambda r: -r.seconds)

    def _rows(self, key: Callable[[LaunchRecord], tuple[int, str]]) -> list[Row]:
        groups: dict[tuple[int, str], list[LaunchRecord]] = {}
        for r in self.records:
            groups.setdefault(key(r), []).append(r)
        runs = max(self.runs, 1)
        seconds = {k: median(sum_by_run(records)) for k, records in groups.items()}
        total = sum(seconds.values()) or 1.0
        return [
            Row(
                k[1],
                len(records) // runs,
                seconds[k],
                seconds[k] / total,
                sum(r.flops for r in records) / runs,
                sum(r.nbytes for r in records) / runs,
            )
            for k, records in groups.items()
        ]

    def to_chrome_trace(self) -> str:
        """The profile as JSON for chrome://tracing and Perfetto: a track of queued and a track of running launches."""
        start = min((r.times.queued for r in self.records), default=0.0)
        names = (("process_name", 0, self.device), ("thread_name", 1, "queued"), ("thread_name", 2, "running"))
        events: list[dict[str, object]] = [
            {"ph": "M", "pid": 1, **({"tid": track} if track else {}), "name": what, "args": {"name": name}}
            for what, track, name in names
        ]
        for r in self.records:
            args = {"kernel": r.kernel, "run": r.run, "GFLOP": r.flops / 1e9, "MB": r.nbytes / 1e6}
            for track, begin, end in ((1, r.times.queued, r.times.start), (2, r.times.start, r.times.end)):
                when = {"ts": (begin - start) * 1e6, "dur": max(end - begin, 0.0) * 1e6}
                about = {"name": r.node or r.kernel, "cat": r.kernel, "args": args}
                events.append({"ph": "X", "pid": 1, "tid": track, **about, **when})
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


class Recorder:
    """Adds the launches of the current run to a profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._run = 0
        self._index = 0

    def start(self, run: int) -> None:
        """Begin the run of index `run`."""
        self._run, self._index = run, 0

    def __call__(self, step: LaunchStep, times: LaunchTimes) -> None:
        record = LaunchRecord(self._run, self._index, step.node, step.kernel, times, step.flops, step.nbytes)
        self._profile.records.append(record)
        self._index += 1


def sum_by_run(records: Iterable[LaunchRecord]) -> Sequence[float]:
    """The total seconds of the records of each run."""
    sums: dict[int, float] = {}
    for r in records:
        sums[r.run] = sums.get(r.run, 0.0) + r.times.seconds
    return list(sums.values())
