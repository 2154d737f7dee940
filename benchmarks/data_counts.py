"""Times small models whose inner sizes differ in each run, and models of many outputs, against onnxruntime.


    python -m benchmarks.data_counts                     # all of benchmarks/models/counts.py
    python -m benchmarks.data_counts nms silero_vad.onnx # likewise a file

A file's inputs are those of the .npz beside it, else seeded random ones. Each run has other inputs of the same sizes.
Both engines run in one process, in turns of a quarter of a second; a time is the fastest fifth of a turn, and the ratio
is that of the engines' medians over the turns. `plans` counts what was planned after the first 50 runs: 0 where no new
size is a new plan.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import onnx
import opalite

from .models import counts
from .models.feeds import random_feeds, stored_feeds
from .new_sizes import open_engine

RUNS = 50
TURN_S = 0.25


def read(name: str) -> tuple[bytes | str, list[dict[str, Any]]]:
    """A model by name or file, and inputs for some runs."""
    if name in counts.NAMES:
        return counts.build(name, RUNS)
    feeds = stored_feeds(Path(name)) or random_feeds(onnx.load(name))
    return name, [feeds]


def turn(session: Any, following: Iterator[dict[str, Any]]) -> float:
    """Microseconds a run, of one turn."""
    clock, times = time.perf_counter, []
    session.run(None, next(following))
    end = clock() + TURN_S
    while clock() < end or not times:
        feeds = next(following)
        started = clock()
        session.run(None, feeds)
        times.append(clock() - started)
    return 1e6 * sorted(times)[len(times) // 5]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(counts.NAMES), metavar="MODEL", help=", ".join(counts.NAMES))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print(f"{'model':24}{'onnxruntime µs':>16}{'Opalite µs':>12}{'ratio':>7}{'plans':>7}  strategy")
    for name in options.models:
        model, inputs = read(name)
        session = opalite.InferenceSession(model)
        sessions = [open_engine("onnxruntime", model, options.threads), session]
        plans = 0
        for done in range(3):
            for feeds in inputs * (1 + 50 // len(inputs)):
                session.run(None, feeds)
            session.settle()
            plans = session.stats().plans_made if not done else plans
        following = cycle(inputs)
        times: list[list[float]] = [[], []]
        for _ in range(options.rounds):
            for own, each in zip(times, sessions, strict=True):
                own.append(turn(each, following))
        theirs, ours = map(statistics.median, times)
        later = session.stats().plans_made - plans
        strategy = session.last_trace.strategy
        print(f"{Path(name).stem:24}{theirs:16.1f}{ours:12.1f}{ours / theirs:7.2f}{later:7}  {strategy}", flush=True)


if __name__ == "__main__":
    main()
