"""StepRows: the steps of one set of sizes as the tables that the program of a step loop reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StepRow:
    """One launch: which function, how many work-groups along x and y and of how many items each, and its arguments."""

    function: int
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    args: tuple[int, ...]  # addresses, and the 64 bits of numbers


@dataclass(frozen=True, eq=False)
class StepRows:
    """args: of all steps, one after the other. shapes: a row for each step. counter_bytes: that their counters take."""

    args: Array
    shapes: Array
    counter_bytes: int


def make_rows(rows: Sequence[StepRow], shape: int, counters: int) -> StepRows:
    """`shape` and `counters`: the numbers of a row of the tables that the program reads."""
    args: list[int] = []
    shapes = np.zeros((len(rows), shape), np.uint32)
    for i, row in enumerate(rows):
        gx, gy, gz = row.groups
        shapes[i] = (row.function, len(args), gx * gy * gz, gx, gy, *row.items)
        args.extend(row.args)
    return StepRows(np.array(args, np.uint64), shapes, 4 * counters * len(rows))
