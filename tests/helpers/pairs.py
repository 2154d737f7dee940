"""Few combinations of many: every pair of values stands in one of them (all-pairs testing).

A fault that shows only where three choices meet is rare, and each combination of a kernel's tests costs a compilation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows of one of each of `choices`, in which every two values of two of them meet; the same in each process."""
    rows = list(product(*(range(len(values)) for values in choices)))
    return [tuple(values[at] for values, at in zip(choices, row, strict=True)) for row in _covering(rows)]


def pairwise_points(points: Iterable[Mapping[str, Hashable]]) -> list[dict[str, Any]]:
    """Some of a kernel's tuning points (`Kernel.points`): every two values that one of all has stand in one of them."""
    points = list(points)
    names = sorted({name for point in points for name in point})
    kept = _covering([tuple(point.get(name) for name in names) for point in points])
    return [dict(zip(names, row, strict=True)) for row in kept]


def _covering(rows: Sequence[tuple[Hashable, ...]]) -> list[tuple[Any, ...]]:
    """Few of `rows`, in which all pairs of values of two columns stand that meet in any: greedily, the first best."""
    columns = list(combinations(range(len(rows[0]) if rows else 0), 2))
    met = {(i, j, row[i], row[j]) for row in rows for i, j in columns}
    taken = []
    while met:
        best = max(rows, key=lambda row: sum((i, j, row[i], row[j]) in met for i, j in columns))
        met -= {(i, j, best[i], best[j]) for i, j in columns}
        taken.append(best)
    return taken
