"""Profile: the times of all launches of some runs, by node and by kernel, and the device's measured peaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from ...cl.queue.event_times import LaunchTimes
from ...plan.program import LaunchStep, Step


@dataclass(frozen=True)
class LaunchRecord:
    """One launch of one run. index: the position among the run's launches."""

    run: int
    index: int
    step: LaunchStep
    times: LaunchTimes

    @property
    def node(self) -> str:
        """The node that the launch computes."""
        return self.step.node

    @property
    def kernel(self) -> str:
        """The name of its kernel."""
        return self.step.kernel

    @property
    def flops(self) -> float:
        """Its operations."""
        return self.step.flops

    @property
    def nbytes(self) -> float:
        """The bytes that it has to move."""
        return self.step.nbytes


@dataclass(frozen=True)
class HostRecord:
    """A transfer, or work of the host, in one run. what: the step, or the label of a task between two programs.

    is_loop: whether it encloses the iterations of a loop.
    """

    run: int
    what: Step | str
    times: LaunchTimes
    is_loop: bool = False


@dataclass(frozen=True)
class Row:
    """The launches of one node or kernel: number, mean seconds of a typical run, share of the device time and work per
    run."""

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
    """Records of several runs of one model on one device. others: of what was not launched."""

    device: str
    records: list[LaunchRecord] = field(default_factory=list)
    others: list[HostRecord] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    peaks: Peaks | None = None
    queueing: list[str] = field(default_factory=list)  # sentences on the strategies of runs without profiling

    @property
    def runs(self) -> int:
        """The number of recorded runs."""
        return len({r.run for r in self.records})

    @property
    def typical_runs(self) -> tuple[int, ...]:
        """The middle half of the runs by their time for the caller, the median run first; others are left out of means.

        Means over one set of runs add up: times of nodes, of kernels and of the device are the same total. A run that
        the system interrupted is long for the caller, wherever in it that happened.
        """
        order = sorted({r.run for r in self.records}, key=self._seconds_of)
        outside = len(order) // 4
        middle = order[outside : len(order) - outside]
        return tuple(sorted(middle, key=lambda run: abs(order.index(run) - (len(order) - 1) / 2)))

    def _seconds_of(self, run: int) -> float:
        """Seconds of a run for the caller; those of its launches where that is not known."""
        if run < len(self.wall_s):
            return self.wall_s[run]
        return sum(r.times.seconds for r in self.records if r.run == run)

    @property
    def device_s(self) -> float:
        """Mean seconds of the launches of a typical run; 0 without launches."""
        return sum(row.seconds for row in self.by_kernel())

    @property
    def run_s(self) -> float:
        """Mean seconds of a typical run for the caller; of all runs without launches."""
        runs = self.typical_runs
        seconds = [self.wall_s[run] for run in runs if run < len(self.wall_s)] or self.wall_s
        return sum(seconds) / len(seconds) if seconds else 0.0

    def by_node(self) -> list[Row]:
        """One row for each launch of a run, in execution order."""
        return self._rows(lambda r: (r.index, r.node))

    def by_kernel(self) -> list[Row]:
        """One row for each kernel, the most expensive first."""
        return sorted(self._rows(lambda r: (0, r.kernel)), key=lambda r: -r.seconds)

    def _rows(self, key: Callable[[LaunchRecord], tuple[int, str]]) -> list[Row]:
        runs = set(self.typical_runs)
        groups: dict[tuple[int, str], list[LaunchRecord]] = {}
        for r in self.records:
            if r.run in runs:
                groups.setdefault(key(r), []).append(r)
        count = max(len(runs), 1)
        seconds = {k: sum(r.times.seconds for r in records) / count for k, records in groups.items()}
        total = sum(seconds.values()) or 1.0
        return [
            Row(
                k[1],
                len(records) // count,
                seconds[k],
                seconds[k] / total,
                sum(r.flops for r in records) / count,
                sum(r.nbytes for r in records) / count,
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
        for number, r in enumerate(self.records):
            args = {"kernel": r.kernel, "run": r.run, "GFLOP": r.flops / 1e9, "MB": r.nbytes / 1e6}
            about = {"name": r.node or r.kernel, "cat": r.kernel, "args": args, "pid": 1}
            queued, begin, end = ((t - start) * 1e6 for t in (r.times.queued, r.times.start, r.times.end))
            # Queued launches overlap, which events of one track may not: each has an id of its own.
            events.append({"ph": "b", "id": number, "tid": 1, "ts": queued, **about})
            events.append({"ph": "e", "id": number, "tid": 1, "ts": max(begin, queued), **about})
            events.append({"ph": "X", "tid": 2, "ts": begin, "dur": max(end - begin, 0.0), **about})
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


class Recorder:
    """Adds the steps of the current run to a profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._run = 0
        self._index = 0

    def start(self, run: int) -> None:
        """Begin the run of index `run`."""
        self._run, self._index = run, 0

    def __call__(self, step: Step, times: LaunchTimes) -> None:
        if not isinstance(step, LaunchStep):
            self._profile.others.append(HostRecord(self._run, step, times))
            return
        self._profile.records.append(LaunchRecord(self._run, self._index, step, times))
        self._index += 1

    def task(self, label: str, is_loop: bool, begin: float, end: float) -> None:
        """Record a host operator, or a loop, between two programs of the current run."""
        times = LaunchTimes(begin, begin, begin, end)
        self._profile.others.append(HostRecord(self._run, label, times, is_loop))
