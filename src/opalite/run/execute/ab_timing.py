"""Timing of two ways to do the same, in turn, so that a change of the machine's load affects both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from statistics import median

from ...lazy_dataclass import dataclass


def least_interleaved_seconds(
    a: Callable[[], float], b: Callable[[], float], *, rounds: int, most_s: float
) -> tuple[float, float]:
    """The least seconds of `a` and of `b`, which return the seconds of one run each.

    rounds: pairs of runs at most. most_s: no further pair, after two, once all runs took that many seconds. Other load
    only adds to a run, so the least is the best estimate.
    """
    pairs: list[tuple[float, float]] = []
    while len(pairs) < rounds and (len(pairs) < 2 or sum(map(sum, pairs)) < most_s):
        pairs.append((a(), b()))
    return min(x for x, _ in pairs), min(y for _, y in pairs)


@dataclass
class PairedTimes:
    """Seconds of runs of two ways, A and B, that callers make anyway and that alternate between the two."""

    a: list[float] = field(default_factory=list)
    b: list[float] = field(default_factory=list)

    @property
    def is_b_next(self) -> bool:
        """Whether the next run to time is one of B."""
        return len(self.a) > len(self.b)

    @property
    def pairs(self) -> int:
        """The number of timed pairs of runs."""
        return min(len(self.a), len(self.b))

    @property
    def medians(self) -> tuple[float, float]:
        """The median seconds of A and of B. Both have been timed."""
        return median(self.a), median(self.b)
