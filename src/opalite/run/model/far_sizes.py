"""FarSizes: which sizes come back that a plan serves, though its kernels were chosen for much smaller or larger ones.

Which kernels and tiles are best changes with the size. The planner's estimates do not tell: by them a plan is within
9 % of the best from a quarter to four times its size, where SqueezeNet planned for 96x96 takes 1.33 times as long at
224x224 as planned there, and planned for 32x32 2.6 times. So the distance tells that a better plan may be worth making,
and measuring decides (nearer_plan.py).
"""

from __future__ import annotations

import math
from enum import Enum

Sizes = tuple[int, ...]

FAR = 2.0
"""Factors of two, of all sizes together, from which on another plan may be better: a picture of four times as many
pixels. With less, ten models took at most 1.15 times as long."""

NEAR = 1.0
"""Factors of two within which sizes are counted as the same ones, and share a plan that is made."""

RETURNS = 3
"""Runs of such sizes after which they are expected to come again."""

MOST = 3
"""Plans that are tried for one part of a model, so that a stream of sizes does not build without end."""

_WATCHED = 16  # choices of sizes that are counted


class Far(Enum):
    """What is to be done about sizes."""

    NO = "the plan was made for such sizes, or none is better"
    WATCHED = "more runs of them tell whether a plan for them is worth making"
    DUE = "a plan for them is to be tried now"


def distance(a: Sizes, b: Sizes) -> float:
    """How far sizes are from each other, in factors of two."""
    return sum(abs(math.log2(max(x, 1) / max(y, 1))) for x, y in zip(a, b, strict=False))


class FarSizes:
    """What came of one part of a model. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[Sizes, int] = {}
        self._tried: list[Sizes] = []

    def come(self, sizes: Sizes, made_for: Sizes) -> Far:
        """A run of `sizes` by a plan that was made for others. DUE is said once."""
        if len(sizes) != len(made_for) or distance(sizes, made_for) < FAR or len(self._tried) >= MOST:
            return Far.NO
        if any(distance(sizes, t) < FAR for t in self._tried):
            return Far.NO
        found = min(self._counts, key=lambda s: distance(s, sizes), default=sizes)
        if distance(found, sizes) > NEAR:
            found = sizes
        count = self._counts.pop(found, 0) + 1
        if count < RETURNS:
            self._counts[found] = count
            if len(self._counts) > _WATCHED:
                del self._counts[next(iter(self._counts))]
            return Far.WATCHED
        self._tried.append(sizes)
        return Far.DUE
