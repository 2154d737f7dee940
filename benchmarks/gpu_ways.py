"""The ways to run a network of benchmarks/gpu.py, each with a new input in each run, and their timing in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

import opalite

Way = Callable[[int], Any]
"""A run of input number `i`, which ends when the device has finished."""
INPUTS = 4
ROUNDS = 5
STRETCH_S = 0.25
"""Seconds of one way in a round, after which the next one's turn comes."""
PEERS = "eager", "graph", "compile", "compiled_graph"
OURS = "io", "opalite", "run"


def inputs_like(x: Any) -> list[Any]:
    """INPUTS arrays with the elements of `x`, which is the first."""
    return [np.ascontiguousarray(np.roll(x, i)) for i in range(INPUTS)]  # as if flat, so that scalars stay


def opalite_ways(session: opalite.InferenceSession, arrays: Sequence[Any]) -> dict[str, Way]:
    """io: inputs and outputs on the device. run: arrays in, arrays out. opalite: the launches alone, `replay`."""
    name, device = session.get_inputs()[0].name, session.device
    values = [opalite.OrtValue.ortvalue_from_numpy(a, device) for a in arrays]
    binding = session.io_binding()
    for port in session.get_outputs():
        binding.bind_output(port.name, "opencl")

    def bound(i: int) -> None:
        binding.bind_ortvalue_input(name, values[i % INPUTS])
        session.run_with_iobinding(binding)

    def run(i: int) -> None:
        session.run(None, {name: arrays[i % INPUTS]})

    return {"run": run, "io": bound, "opalite": lambda i: session.replay()}


def run_until_linked(session: Any, run: Way) -> None:
    """Runs until the decision whether launches are linked (docs/running.md)."""
    for _ in range(2):
        for i in range(30):
            run(i)
        session.settle()


def times_in_turn(ways: Mapping[str, Way], repeats: int) -> dict[str, float]:
    """Median milliseconds of each way. They alternate in short stretches, so that a slow phase meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            run(0)
            begun = time.perf_counter()
            for i in range(1, 1 + -(-repeats // ROUNDS)):
                started = time.perf_counter()
                run(i)
                now = time.perf_counter()
                times[name].append(now - started)
                if now - begun > STRETCH_S:
                    break
    return {name: median(found) * 1e3 for name, found in times.items()}


def best_peer(record: Mapping[str, Any]) -> float | None:
    """The least milliseconds of PyTorch's ways in a record; None if there are none."""
    return min((record[p] for p in PEERS if isinstance(record.get(p), float)), default=None)


def ratios(records: Iterable[Mapping[str, Any]], way: str) -> dict[tuple[int, str], list[float]]:
    """Milliseconds of Opalite's `way` over PyTorch's best, by batch and precision, of the rows that have both."""
    found: dict[tuple[int, str], list[float]] = {}
    for record in records:
        best = best_peer(record)
        if best is not None and isinstance(record.get(way), float):
            found.setdefault((record["batch"], record["precision"]), []).append(record[way] / best)
    return found


def summary(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each batch, precision and way: the geometric mean of the ratios, and those above 1.3."""
    lines = []
    for way in OURS:
        for (batch, precision), found in ratios(records, way).items():
            mean = math.exp(sum(map(math.log, found)) / len(found))
            above = sum(r > 1.3 for r in found)
            lines.append(
                f"batch {batch} {precision} {way}: geometric mean {mean:.3f} of PyTorch's best over {len(found)} "
                f"networks, {above} above 1.3"
            )
    return lines
