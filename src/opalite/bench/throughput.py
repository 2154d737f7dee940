"""`measure_throughput`: inferences per second of one session, of threads, of processes, of other engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..errors import OpaliteError
from .compare import Plan, Probe, measure_alternately
from .engines import Array
from .median_ratios import Spread, TimeSlice
from .worker_process import EngineProcess


@dataclass(frozen=True)
class Mode:
    """A way to keep the cores busy.

    kind: 'latency' (one session, one call at a time, every core), 'threads' (of one session), 'processes' (pinned, each
    with its share of the cores), 'sessions' (of onnxruntime, likewise in one process), 'hint' (OpenVINO's THROUGHPUT).
    """

    engine: str
    kind: str
    workers: int = 1

    def __str__(self) -> str:
        return f"{self.engine} {self.kind}" + (f" {self.workers}" if self.workers > 1 else "")


@dataclass
class ModeResult:
    """A mode's slices; `difference` is relative to the first mode's outputs."""

    mode: Mode
    version: str
    device: str
    slices: list[TimeSlice] = field(default_factory=list)
    accepted: list[TimeSlice] = field(default_factory=list)
    difference: float = 0.0

    @property
    def rate(self) -> Spread:
        """Inferences per second: the spread of the accepted slices."""
        return Spread.of([s.rate for s in self.accepted])

    def latency_s(self, percentile: float) -> float:
        """Percentile of an inference's seconds from its start by a worker, over accepted slices."""
        return float(np.percentile([t for s in self.accepted for t in s.times], percentile))


@dataclass
class Throughput:
    """All modes of one model, in measuring order; `failed` has the reasons of missing modes."""

    model: str
    plan: Plan
    modes: list[ModeResult]
    failed: dict[str, str]

    @property
    def best(self) -> ModeResult:
        """Opalite's mode with the most inferences per second."""
        return max((y for y in self.modes if y.mode.engine == "opalite"), key=lambda y: y.rate.median)

    def gain(self, of: ModeResult) -> float:
        """The rate of `of` over the first mode's: median over rounds with accepted slices of both."""
        first = {s.round: s.rate for s in self.modes[0].accepted}
        found = [s.rate / first[s.round] for s in of.accepted if s.round in first]
        return float(np.median(found)) if found else of.rate.median / self.modes[0].rate.median


def modes_of(engines: Sequence[str], cores: int, is_cpu: bool) -> list[Mode]:
    """The modes to measure: latency mode, and worker counts that share the cores: powers of two, and all cores."""
    counts = sorted({n for n in (2, 4, 8, 16, 32) if n <= cores} | ({cores} if cores > 1 else set())) if is_cpu else [2]
    found: list[Mode] = []
    for engine in engines:
        found.append(Mode(engine, "latency"))
        if engine == "openvino":
            found.append(Mode(engine, "hint"))
        else:
            kinds = ("threads", "processes") if engine == "opalite" else ("sessions",)
            found += [Mode(engine, kind, n) for kind in kinds for n in counts]
    return found


def measure_throughput(
    model: Path,
    feeds: Mapping[str, Array],
    modes: Sequence[Mode],
    plan: Plan,
    extra: Mapping[str, Mapping[str, str]] | None = None,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Throughput:
    """Measures `modes` alternately, each in its own process, which is stopped while others work.

    extra: options by engine. on_progress: called with lines of text. An unavailable mode is left out; OpaliteError if
    the first one is.
    """
    failed: dict[str, str] = {}
    found: list[tuple[EngineProcess, ModeResult]] = []
    with TemporaryDirectory() as temporary, ExitStack() as stack:
        probe = Probe(plan.threads)
        stack.callback(probe.close)
        folder = Path(temporary)
        for mode in modes:
            process = stack.enter_context(EngineProcess(mode.engine))
            options = (extra or {}).get(mode.engine, {})
            on_progress(f"{mode}: loading")
            try:
                loaded = process.load(model, plan.threads, feeds, folder, options, mode.kind, mode.workers)
                with process.awake():
                    process.settle(plan.settle)
            except OpaliteError as e:
                if mode is modes[0]:
                    raise
                failed[str(mode)] = str(e)
                continue
            found.append((process, ModeResult(mode, loaded["version"], loaded["device"])))
        measure_alternately(found, lambda p: _work(p, plan.slice_s), probe, plan, folder, on_progress)
    return Throughput(str(model), plan, [y for _, y in found], failed)


def _work(process: EngineProcess, seconds: float) -> tuple[list[float], float]:
    process.work(seconds / 4)  # warm-up after the stop
    return process.work(seconds)
