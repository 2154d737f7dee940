"""Medians with their spread, and ratios of engines measured side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from .engines import Array


@dataclass(frozen=True)
class Spread:
    """The middle of some numbers: median, and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one number."""
        low, median, high = np.percentile(values, (25, 50, 75))
        return cls(float(median), float(low), float(high), len(values))


@dataclass(frozen=True)
class TimeSlice:
    """One engine's turn in one round: seconds of each run, and the worse of the probes before and after it."""

    round: int
    times: tuple[float, ...]
    probe_s: float

    @property
    def median(self) -> float:
        """Seconds of the middle run."""
        return float(np.median(self.times))


_S = TypeVar("_S", bound=TimeSlice)


def accept(slices: Sequence[_S], calm_s: float, tolerance: float) -> list[_S]:
    """The slices whose probe was at most `tolerance` times the calm machine's; all of them if fewer than three are."""
    calm = [s for s in slices if s.probe_s <= calm_s * tolerance]
    return calm if len(calm) >= 3 else list(slices)


def ratios(engine: Sequence[TimeSlice], baseline: Sequence[TimeSlice]) -> list[float]:
    """Time of `engine` over time of `baseline`, for each round that has a slice of both."""
    of_round = {s.round: s.median for s in baseline}
    return [s.median / of_round[s.round] for s in engine if s.round in of_round]


def difference(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """Largest difference of any output, relative to that output's largest magnitude; infinite if shapes differ or a
    number is not finite in one of them alone."""
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
