"""Compares two programs of one graph by running them alternately on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np

from ..cl.runtime import Runtime
from ..plan.program import Program
from ..run.execute.executable import Executable
from ..run.execute.host_operators import HostRunner
from .measure_candidates import random_array
from .tuning_search import time_alternately

ROUNDS = 15
FEWEST_ROUNDS = 5  # fewest rounds, for models that take seconds
TURN_S = 0.05
MOST_S = 20.0  # most seconds for all rounds, beyond the fewest


def compare_programs(rt: Runtime, a: Program, b: Program, host_runner: HostRunner) -> tuple[float, float, float]:
    """(seconds of `a`, seconds of `b`, b's share of a's) with seeded random inputs, as medians over rounds.

    In each round both run, and the least time counts, because other load of the machine only adds time. The programs
    remain usable. Errors of building and running propagate.
    """
    rng = np.random.default_rng(0)
    feeds = [random_array(p.dtype, p.shape, rng) for p in a.inputs]
    # An Executable consumes a program's weights, so each gets its own list. Megakernels are disabled, since one of the
    # two would get its megakernel before the other.
    both = [Executable(rt, replace(p, weights=dict(p.weights)), host_runner, is_trial=True) for p in (a, b)]

    def run(executable: Executable) -> float:
        started = time.perf_counter()
        executable.run(feeds)
        return time.perf_counter() - started

    for executable in both:
        run(executable)
    once = max(map(run, both))
    runs = max(1, int(TURN_S / once))
    rounds = max(FEWEST_ROUNDS, min(ROUNDS, int(MOST_S / (2 * runs * once))))

    def turns(executable: Executable) -> Callable[[], float]:
        return lambda: min(run(executable) for _ in range(runs))

    pairs = time_alternately(turns(both[0]), turns(both[1]), rounds)
    assert pairs is not None
    return median(x for x, _ in pairs), median(y for _, y in pairs), median(y / x for x, y in pairs)
