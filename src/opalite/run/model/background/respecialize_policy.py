"""RespecializePolicy: decides when sizes are worth a plan of their own, because they come back and are far from others.

The best kernels and tiles depend on the size. The planner's estimates do not show by how much: by them a plan is within
9 % of the best from a quarter to four times its size. But SqueezeNet planned for 96x96 takes 1.33 times as long at
224x224 as planned there, and planned for 32x32 2.6 times. So a distance decides that a plan is tried, and timing
decides whether it is used (respecialize.py).
"""

from __future__ import annotations

import math
from enum import Enum

Sizes = tuple[int, ...]

FAR = 2.0
"""Factors of two, of all sizes together, from which on another plan may be better: an image of four times as many
pixels. With smaller distances, ten models took at most 1.15 times as long.
"""

RETURNS = 3
"""Runs of equal sizes, among the last far ones, after which a plan for them is tried."""

NEAR = 1.0
"""Factors of two within which sizes count as similar."""

ALIKE = 256
"""Runs of similar sizes, such as a growing text, after which a plan for them is tried. A plan needs memory, and takes
the interpreter for 0.1 s or more, during which runs are slower.
"""

MOST = 2
"""Plans that are tried for one part of a model."""

_WATCHED = 8  # sizes that are counted


class DistantShape(Enum):
    """The decision on the sizes of a run."""

    NO = "the plan was made for such sizes, or none is better"
    WATCHED = "more runs of them tell whether a plan for them is worth making"
    DUE = "a plan for them is to be tried now"


def distance(a: Sizes, b: Sizes) -> float:
    """The distance between sizes, in factors of two."""
    return sum(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in zip(a, b, strict=False))


class RespecializePolicy:
    """The counts and the plans that were tried for one part of a model. Not thread-safe."""

    def __init__(self) -> None:
        self._same: dict[Sizes, int] = {}  # runs, the latest last
        self._alike: dict[Sizes, int] = {}
        self._tried: list[Sizes] = []

    def record_run(self, sizes: Sizes, made_for: Sizes) -> DistantShape:
        """Count a run of `sizes` by a plan for others. Returns DUE once, when a plan for `sizes` should be tried."""
        if not self.is_open(sizes, made_for):
            return DistantShape.NO
        like = min(self._alike, key=lambda s: distance(s, sizes), default=sizes)
        if distance(like, sizes) > NEAR:
            like = sizes
        if _count(self._same, sizes) < RETURNS and _count(self._alike, like) < ALIKE:
            return DistantShape.WATCHED
        self._tried.append(sizes)
        return DistantShape.DUE

    def is_open(self, sizes: Sizes, made_for: Sizes) -> bool:
        """Whether runs of `sizes` by a plan for others may make another plan due."""
        if len(sizes) != len(made_for) or distance(sizes, made_for) < FAR or len(self._tried) >= MOST:
            return False
        return not any(distance(sizes, t) < FAR for t in self._tried)


def _count(counts: dict[Sizes, int], sizes: Sizes) -> int:
    """Count one run. Returns the count; the sizes that ran least recently are forgotten."""
    counts[sizes] = found = counts.pop(sizes, 0) + 1
    if len(counts) > _WATCHED:
        del counts[next(iter(counts))]
    return found
