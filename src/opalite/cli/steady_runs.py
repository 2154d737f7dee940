"""Runs of a session until their time is steady: the speed that a program with this model reaches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession
    from ..run.execute.run_trace import RunTrace

_MOST_S = 1.0
_FEWEST = 10
_STEADY = 0.03  # by which the medians of the two halves of the runs may differ
_UNTIMED = 25  # runs before those timed: background builds that take over begin after twenty
_BUILD_S = 10.0


@dataclass
class SteadyRuns:
    """The timed runs and the outputs of the last. is_steady: whether the later half is as fast as the earlier one."""

    traces: list[RunTrace]
    outputs: list[Any]
    is_steady: bool = True

    @property
    def seconds(self) -> list[float]:
        """Seconds of each run for the caller."""
        return [t.total_s for t in self.traces]

    @property
    def median_s(self) -> float:
        """The median of the runs."""
        return statistics.median(self.seconds)

    def describe(self, batch: int) -> str:
        """Milliseconds and inferences a second; of pictures, frames a second. batch: pictures in a run, 0 for none."""
        ms = 1e3 * self.median_s
        what = "frames" if batch else "inferences"
        low, high = 1e3 * min(self.seconds), 1e3 * max(self.seconds)
        rate = (batch or 1) / self.median_s if ms else 0.0
        spread = f", {low:.3g} to {high:.3g} ms" if len(self.traces) > 1 else ""
        of = f"median of {len(self.traces)} runs" if len(self.traces) > 1 else "one run"
        state = "" if self.is_steady else "; not steady yet, --iterations takes more"
        return f"{ms:.3g} ms an inference, {rate_text(rate)} {what}/s ({of}{spread}{state})"


def run_times(session: InferenceSession, feeds: Mapping[str, Any], warmup: int, iterations: int) -> SteadyRuns:
    """`iterations` timed runs after `warmup` others."""
    outputs: list[Any] = []
    traces = []
    for i in range(warmup + iterations):
        outputs = session.run(None, feeds)
        if i >= warmup:
            traces.append(session.last_trace)
    return SteadyRuns(traces, outputs)


def run_until_steady(session: InferenceSession, feeds: Mapping[str, Any]) -> SteadyRuns:
    """Runs until the later half is as fast as the earlier one, or _MOST_S seconds have passed."""
    started = time.perf_counter()
    for _ in range(_UNTIMED):
        session.run(None, feeds)
        if time.perf_counter() - started > _MOST_S:
            break
    session.settle(_BUILD_S)
    outputs = session.run(None, feeds)  # a program that took over runs for the first time
    found = SteadyRuns([], outputs, is_steady=False)
    started = time.perf_counter()
    while time.perf_counter() - started < _MOST_S or not found.traces:
        found.outputs = session.run(None, feeds)
        found.traces.append(session.last_trace)
        if len(found.traces) >= _FEWEST and len(found.traces) % 2 == 0:
            half = len(found.traces) // 2
            early, late = statistics.median(found.seconds[:half]), statistics.median(found.seconds[half:])
            if abs(early - late) <= _STEADY * late:
                found.is_steady = True
                break
    return found


def rate_text(rate: float) -> str:
    """A rate with three digits or more: 0.512, 63.0, 37,770."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
