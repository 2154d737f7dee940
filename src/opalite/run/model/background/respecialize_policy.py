"""RespecializePolicy: which sizes come back that a plan serves, though its kernels were chosen for much smaller or
larger ones.

Which kernels and tiles are best changes with the size. The planner's estimates do not tell: by them a plan is within
9 % of the best from a quarter to four times its size, where SqueezeNet planned for 96x96 takes 1.33 times as long at
224x224 as planned there, and planned for 32x32 2.6 times. So the distance tells that a better plan may be worth making,
and measuring decides (respecialize.py).
"""

from __future__ import annotations

import math
from enum import Enum

Sizes = tuple[int, ...]

FAR = 2.0
"""Factors of two, of all sizes together, from which on another plan may be better: a picture of four times as many
pixels. With less, ten models took at most 1.15 times as long."""

RETURNS = 3
"""Runs of the very same sizes, among the last few far ones, after which they are expected to come again."""

NEAR = 1.0
"""Factors of two within which sizes are counted as alike."""

ALIKE = 256
"""Runs of sizes that are alike, such as a text that grows, after which more are expected. A plan takes the interpreter
for a tenth of a second or more, in which runs are slower, and memory of its own: a stream of sizes, each run once or
twice, is not worth it until it has lasted."""

MOST = 2
"""Plans that are tried for one part of a model, so that a stream of sizes does not build without end."""

_WATCHED = 8  # choices of sizes that are counted


class DistantShape(Enum):
    """What is to be done about sizes."""

    NO = "the plan was made for such sizes, or none is better"
    WATCHED = "more runs of them tell whether a plan for them is worth making"
    DUE = "a plan for them is to be tried now"


def distance(a: Sizes, b: Sizes) -> float:
    """How far sizes are from each other, in factors of two."""
    return sum(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in zip(a, b, strict=False))


class RespecializePolicy:
    """What came of one part of a model. Not thread-safe."""

    def __init__(self) -> None:
        self._same: dict[Sizes, int] = {}  # runs, the latest last
        self._alike: dict[Sizes, int] = {}
        self._tried: list[Sizes] = []

    def record_run(self, sizes: Sizes, made_for: Sizes) -> DistantShape:
        """A run of `sizes` by a plan that was made for others. DUE is said once."""
        if len(sizes) != len(made_for) or distance(sizes, made_for) < FAR or len(self._tried) >= MOST:
            return DistantShape.NO
        if any(distance(sizes, t) < FAR for t in self._tried):
            return DistantShape.NO
        like = min(self._alike, key=lambda s: distance(s, sizes), default=sizes)
        if distance(like, sizes) > NEAR:
            like = sizes
        if _count(self._same, sizes) < RETURNS and _count(self._alike, like) < ALIKE:
            return DistantShape.WATCHED
        self._tried.append(sizes)
        return DistantShape.DUE


def _count(counts: dict[Sizes, int], sizes: Sizes) -> int:
    """One more; those that have not come for longest go."""
    counts[sizes] = found = counts.pop(sizes, 0) + 1
    if len(counts) > _WATCHED:
        del counts[next(iter(counts))]
    return found
