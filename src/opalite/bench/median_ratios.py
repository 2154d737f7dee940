"""Medians with their spread, and ratios of engines measured alternately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .engines import Array


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some numbers."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        low, median, high = np.percentile(values, (25, 50, 75))
        return cls(float(median), float(low), float(high), len(values))


@dataclass(frozen=True)
class TimeSlice:
    """One engine's measurement in one round: seconds of each run, and the slower probe before or after it.

    seconds: in total, where runs were concurrent.
    """

    round: int
    times: tuple[float, ...]
    probe_s: float
    seconds: float = 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.times))

    @property
    def rate(self) -> float:
        """Concurrent runs per second."""
        return len(self.times) / self.seconds


def accept(slices: Sequence[TimeSlice], calm_s: float, tolerance: float) -> list[TimeSlice]:
    """Slices whose probe took at most `tolerance` times the calm machine's time; all of them if fewer than three."""
    calm = [s for s in slices if s.probe_s <= calm_s * tolerance]
    return calm if len(calm) >= 3 else list(slices)


def ratios(engine: Sequence[TimeSlice], baseline: Sequence[TimeSlice]) -> list[float]:
    """Time of `engine` over time of `baseline`, for each round with a slice of both."""
    of_round = {s.round: s.median for s in baseline}
    return [s.median / of_round[s.round] for s in engine if s.round in of_round]


def difference(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """Largest difference of any output, relative to the output's largest magnitude.

    Infinite if shapes differ or only one of two numbers is finite.
    """
    if len(outputs) != len(expected) or any(a.shape != b.shape for a, b in zip(outputs, expected, strict=False)):
        return float("inf")
    worst = 0.0
    for a, b in zip(outputs, expected, strict=True):
        if a.size == 0 or a.dtype.kind not in "fiub":
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return float("inf")
        x, y = np.nan_to_num(x), np.nan_to_num(y)
        gap = float(np.abs(x - y).max())
        worst = max(worst, gap / (float(np.abs(y).max()) or 1.0))
    return worst
