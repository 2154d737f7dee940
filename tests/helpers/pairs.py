"""Few combinations of many: every pair of values stands in one of them (all-pairs testing).

A fault that shows only where three choices meet is rare, and each combination of a kernel's tests costs a compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows of one of each of `choices`, in which every two values of two of them meet; the same in each process."""
    rows = list(product(*(range(len(values)) for values in choices)))
    columns = list(combinations(range(len(choices)), 2))
    met = {(i, j, row[i], row[j]) for row in rows for i, j in columns}
    taken = []
    while met:
        best = max(rows, key=lambda row: sum((i, j, row[i], row[j]) in met for i, j in columns))
        met -= {(i, j, best[i], best[j]) for i, j in columns}
        taken.append(tuple(values[at] for values, at in zip(choices, best, strict=True)))
    return taken
