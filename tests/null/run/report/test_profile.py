"""Totals of a profile agree with each other, and its trace draws every launch."""

from __future__ import annotations

import itertools
import json

import pytest

from opalite.cl.queue.event_times import LaunchTimes
from opalite.plan.program import LaunchStep
from opalite.run.report.profile import LaunchRecord, Profile


def made(runs: list[list[float]]) -> Profile:
    """A profile of runs of launches with these seconds; launches are queued at once and run one after the other."""
    profile = Profile("a device", wall_s=[2 * sum(seconds) for seconds in runs])
    clock = 0.0
    for run, seconds in enumerate(runs):
        queued = clock
        for index, taken in enumerate(seconds):
            times = LaunchTimes(queued, queued, clock, clock + taken)
            step = LaunchStep(0, "f", (), (1,), None, f"node {index}", f"kernel {index % 2}", 1e6, 1e3)
            profile.records.append(LaunchRecord(run, index, step, times))
            clock += taken
    return profile


RUNS = [[1.0, 2.0, 3.0], [3.0, 1.0, 9.0], [2.0, 2.0, 2.5], [1.5, 2.5, 2.0], [50.0, 1.0, 1.0], [0.1, 0.1, 0.1]]


@pytest.mark.parametrize("count", range(1, 7))
def test_totals_agree(count: int) -> None:
    profile = made(RUNS[:count])
    totals = [sum(row.seconds for row in rows) for rows in (profile.by_node(), profile.by_kernel())]
    assert totals == pytest.approx([profile.device_s] * 2)
    assert profile.run_s == pytest.approx(2 * profile.device_s)
    assert [row.launches for row in profile.by_node()] == [1, 1, 1]
    assert sum(row.share for row in profile.by_node()) == pytest.approx(1)


def test_the_slowest_and_the_fastest_runs_do_not_count() -> None:
    profile = made(RUNS)
    assert set(profile.typical_runs) == {0, 1, 2, 3}
    assert profile.typical_runs[0] in (2, 3)


def test_a_run_that_was_interrupted_does_not_count() -> None:
    profile = made([[1.0, 1.0]] * 6)
    profile.wall_s = [3.0, 90.0, 3.2, 3.1, 2.9, 3.3]  # the device took as long in each
    assert 1 not in profile.typical_runs
    assert profile.run_s < 4


def test_every_launch_is_in_the_trace() -> None:
    events = json.loads(made(RUNS).to_chrome_trace())["traceEvents"]
    by_phase = {phase: [e for e in events if e["ph"] == phase] for phase in "beX"}
    assert {phase: len(found) for phase, found in by_phase.items()} == {"b": 18, "e": 18, "X": 18}
    ends = {e["id"]: e["ts"] for e in by_phase["e"]}
    assert all(ends[e["id"]] >= e["ts"] for e in by_phase["b"])
    running = sorted(by_phase["X"], key=lambda e: e["ts"])
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in itertools.pairwise(running))
