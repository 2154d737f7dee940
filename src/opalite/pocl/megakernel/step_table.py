"""StepArrays: the steps of one set of sizes as the tables that the program of a step loop reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class StepArrays:
    """args: of all steps, one after the other: addresses, and the 64 bits of numbers.

    shapes: a row for each step: which function, where its arguments begin, how many work-groups, along x and y, and of
    how many items each. counter_bytes: that their counters take.
    """

    args: Array
    shapes: Array
    counter_bytes: int
