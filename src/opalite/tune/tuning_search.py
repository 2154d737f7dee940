"""The search: measures trials within a budget, rejects wrong outputs, confirms the winner against the default.

`measure` is a parameter, so that tests replay recorded times without a clock (as Kernel Tuner's simulation mode).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from ..ir.device.device_family import TIMER_OUTLIERS
from ..ir.device.device_info import DeviceInfo
from .tuning_levels import Trial

CONFIRM_ROUNDS = 7
CONFIRM_GAIN = 0.02  # the winner must beat the default by this share when both are measured alternately

Measure = Callable[[Trial], float | None]
"""Seconds of one trial (the least of several runs): infinite if it computes something else, None if it is refused, as
it does not build, or the device does not run it."""


@dataclass
class SearchResult:
    """The outcome for one node: the winner, its time, the default's time, the trials.

    best: None if not even the default ran.
    """

    best: Trial | None
    seconds: float
    default_seconds: float
    times: dict[Trial, float] = field(default_factory=dict)
    wrong: list[Trial] = field(default_factory=list)  # wrong output
    refused: list[Trial] = field(default_factory=list)  # failed to build or to run
    complete: bool = True

    @property
    def gain(self) -> float:
        """The default's time over the winner's."""
        return self.default_seconds / self.seconds if self.seconds else 1.0


def search(
    trials: Iterable[Trial],
    measure: Measure,
    device: DeviceInfo,
    *,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
    known: Mapping[Trial, float | None] | None = None,
    on_trial: Callable[[Trial, float | None], None] | None = None,
) -> SearchResult:
    """The fastest of `trials` in their order. The first is the default: always measured, kept unless beaten.

    known: times of an earlier search, not measured again. on_trial: called after each new trial.
    """
    known = known or {}
    found = SearchResult(None, math.inf, math.inf)
    times = found.times
    first: Trial | None = None
    started = clock()
    for trial in trials:
        is_first = first is None
        first = first or trial
        if not is_first and clock() - started > budget_s:
            found.complete = False
            break
        if trial in known and not is_first:
            seconds = known[trial]
        else:
            seconds = measure(trial)
            if on_trial is not None:
                on_trial(trial, seconds)
        if seconds is not None and seconds < math.inf:
            times[trial] = seconds
            continue
        (found.refused if seconds is None else found.wrong).append(trial)
        if is_first:
            break
    if first is None or first not in times:
        return found
    believed = drop_outliers(times, device)
    best = min(believed, key=lambda t: believed[t], default=first)
    if best is first:
        found.best, found.seconds, found.default_seconds = first, times[first], times[first]
    else:
        found.best, found.seconds, found.default_seconds = confirm(first, best, measure, times[first])
    return found


def drop_outliers(times: dict[Trial, float], device: DeviceInfo) -> dict[Trial, float]:
    """`times` without outliers on devices with unreliable events (Adreno 3xx).

    Outliers are over 100 s or under a tenth of the mean, as in TensorFlow Lite.
    """
    if TIMER_OUTLIERS not in device.quirks:
        return times
    plausible = {t: s for t, s in times.items() if s < 100.0}
    if not plausible:
        return times
    mean = sum(plausible.values()) / len(plausible)
    return {t: s for t, s in plausible.items() if s >= 0.1 * mean}


def confirm(default: Trial, winner: Trial, measure: Measure, default_seconds: float) -> tuple[Trial, float, float]:
    """(the kept trial, its seconds, the default's seconds), both measured alternately.

    The winner is kept only if its median is better by CONFIRM_GAIN.
    """
    rounds = time_alternately(lambda: measure(default), lambda: measure(winner), CONFIRM_ROUNDS)
    if rounds is None:
        return default, default_seconds, default_seconds
    d, w = median([a for a, _ in rounds]), median([b for _, b in rounds])
    return (winner, w, d) if w < d * (1 - CONFIRM_GAIN) else (default, d, d)


def time_alternately(
    a: Callable[[], float | None], b: Callable[[], float | None], rounds: int
) -> list[tuple[float, float]] | None:
    """Times of `a` and `b`; rounds alternate which one is first. None as soon as a trial has no time."""
    found = []
    for i in range(rounds):
        if i % 2 == 0:
            first, second = a(), b()
        else:
            second, first = b(), a()
        if first is None or second is None or math.inf in (first, second):
            return None
        found.append((first, second))
    return found
