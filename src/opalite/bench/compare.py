"""`compare` measures several engines on one model alternately."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..errors import InputError, OpaliteError
from .engines import Array
from .machine_speed import Probe
from .median_ratios import Spread, TimeSlice, accept, difference, ratios
from .worker_process import EngineProcess


@dataclass(frozen=True)
class Plan:
    """Measurement parameters; seconds are wall-clock time.

    settle: untimed runs before all else, twice, since engines may optimise what runs often. tolerance: slowest accepted
    probe, 1 being the calm machine.
    """

    threads: int = 2
    rounds: int = 12
    slice_s: float = 0.25
    warmup: int = 2
    least: int = 3
    settle: int = 25
    tolerance: float = 1.15
    seed: int = 0


@dataclass
class Measured:
    """One engine's results in seconds.

    memory: peak bytes of host memory until the first run ended. difference: relative to the first engine's outputs.
    """

    engine: str
    version: str
    device: str
    load_s: float
    first_s: float
    slices: list[TimeSlice] = field(default_factory=list)
    accepted: list[TimeSlice] = field(default_factory=list)
    difference: float = 0.0
    memory: int = 0

    @property
    def run_s(self) -> Spread:
        """Seconds of one run: the spread of the accepted slices' medians."""
        return Spread.of([s.median for s in self.accepted])


@dataclass
class Comparison:
    """All engines on one model, in the given order; `failed` has the reasons of missing engines."""

    model: str
    plan: Plan
    calm_s: float
    engines: list[Measured]
    failed: dict[str, str]

    def ratio(self, engine: Measured, baseline: Measured) -> Spread | None:
        """Time of `engine` over `baseline`, by round; None if no round has accepted slices of both."""
        found = ratios(engine.accepted, baseline.accepted)
        return Spread.of(found) if found else None


def compare(
    model: Path,
    feeds: Mapping[str, Array],
    engines: Sequence[str],
    plan: Plan | None = None,
    extra: Mapping[str, Mapping[str, str]] | None = None,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Measure `engines` (names as in bench.engines) on `model` with the inputs `feeds`.

    `extra` holds options by engine. `on_progress` is called with lines of text. An engine that is not
    installed or cannot run the model is left out; OpaliteError if that is every one.
    """
    if len(set(engines)) < len(engines) or not engines:
        raise InputError(f"engines to compare must be named once each; got {', '.join(engines) or 'none'}")
    plan = plan or Plan()
    probe = Probe(plan.threads)
    with TemporaryDirectory() as temporary, ExitStack() as stack:
        stack.callback(probe.close)
        folder = Path(temporary)
        processes: list[EngineProcess] = []
        measured: list[Measured] = []
        failed: dict[str, str] = {}
        for name in engines:
            process = stack.enter_context(EngineProcess(name))
            on_progress(f"{name}: loading")
            try:
                loaded = process.load(model, plan.threads, feeds, folder, (extra or {}).get(name, {}))
            except OpaliteError as e:
                failed[name] = str(e)
                continue
            processes.append(process)
            measured.append(Measured(name, **loaded))
        if not measured:
            raise OpaliteError(f"no engine could run {model}:\n" + "\n".join(failed.values()))
        _measure(processes, measured, probe, plan, on_progress)
        expected = processes[0].outputs(folder)
        for process, m in zip(processes[1:], measured[1:], strict=True):
            m.difference = difference(process.outputs(folder), expected)
    # The calm speed is the fastest quartile, since the single best moment may be a short clock boost.
    calm = float(np.percentile([s.probe_s for m in measured for s in m.slices], 25))
    for m in measured:
        m.accepted = accept(m.slices, calm, plan.tolerance)
    return Comparison(str(model), plan, calm, measured, failed)


def _measure(
    processes: Sequence[EngineProcess],
    measured: Sequence[Measured],
    probe: Probe,
    plan: Plan,
    on_progress: Callable[[str], None],
) -> None:
    """Fills the slices: every engine once per round, in random order, with a probe before and after each."""
    for process in processes:
        with process.awake():
            process.settle(plan.settle)
    order = list(range(len(processes)))
    shuffle = random.Random(plan.seed).shuffle
    before = probe.measure()
    for turn in range(plan.rounds):
        shuffle(order)
        for i in order:
            with processes[i].awake():
                times = processes[i].slice(plan.slice_s, plan.warmup, plan.least)
            after = probe.measure()
            measured[i].slices.append(TimeSlice(turn, tuple(times), max(before, after)))
            before = after
        on_progress(f"round {turn + 1} of {plan.rounds}")
