"""`compare` measures several engines on one model alternately."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..errors import InputError, OpaliteError
from .engines import Array
from .median_ratios import Spread, TimeSlice, accept, difference, ratios
from .worker_process import EngineProcess

_SIGNAL = np.linspace(-1, 1, 131072, dtype=np.float32)
_TAPS = np.linspace(-1, 1, 255, dtype=np.float32)


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
        found: list[tuple[EngineProcess, Measured]] = []
        failed: dict[str, str] = {}
        for name in engines:
            process = stack.enter_context(EngineProcess(name))
            on_progress(f"{name}: loading")
            try:
                loaded = process.load(model, plan.threads, feeds, folder, (extra or {}).get(name, {}))
            except OpaliteError as e:
                failed[name] = str(e)
                continue
            found.append((process, Measured(name, **loaded)))
        if not found:
            raise OpaliteError(f"no engine could run {model}:\n" + "\n".join(failed.values()))
        for process, _ in found:
            with process.awake():
                process.settle(plan.settle)
        calm = measure_alternately(
            found, lambda p: (p.slice(plan.slice_s, plan.warmup, plan.least), 0.0), probe, plan, folder, on_progress
        )
    return Comparison(str(model), plan, calm, [measured for _, measured in found], failed)


def measure_alternately(
    found: Sequence[tuple[EngineProcess, Any]],
    run: Callable[[EngineProcess], tuple[list[float], float]],
    probe: Probe,
    plan: Plan,
    folder: Path,
    on_progress: Callable[[str], None],
) -> float:
    """Fill slices, accepted slices and difference of each process's result; return the calm machine's probe time.

    Each round calls `run` once for each awake process, in random order, with a probe before and after. run: returns the
    seconds of each inference and in total.
    """
    order = list(found)
    shuffle = random.Random(plan.seed).shuffle
    before = probe.measure()
    for turn in range(plan.rounds):
        shuffle(order)
        for process, result in order:
            with process.awake():
                times, seconds = run(process)
            after = probe.measure()
            result.slices.append(TimeSlice(turn, tuple(times), max(before, after), seconds))
            before = after
        on_progress(f"round {turn + 1} of {plan.rounds}")
    # The calm speed is the fastest quartile, since the single best moment may be a short clock boost.
    calm = float(np.percentile([s.probe_s for _, result in found for s in result.slices], 25))
    expected = found[0][0].outputs(folder)
    for process, result in found:
        result.difference = difference(process.outputs(folder), expected)
        result.accepted = accept(result.slices, calm, plan.tolerance)
    return calm


class Probe:
    """The machine's speed: times `threads` simultaneous convolutions, slower if clocks drop or others use the cores."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self.measure()

    def measure(self) -> float:
        """Seconds of the better of two attempts, some milliseconds each."""
        return min(self._once(), self._once())

    def close(self) -> None:
        self._pool.shutdown()

    def _once(self) -> float:
        begin = time.perf_counter()
        for done in [self._pool.submit(np.convolve, _SIGNAL, _TAPS) for _ in range(self._threads)]:
            done.result()
        return time.perf_counter() - begin
