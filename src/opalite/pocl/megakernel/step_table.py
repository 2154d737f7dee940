"""StepArrays: host arrays of a megakernel's step table for one set of sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class StepArrays:
    """Step table of a megakernel.

    args: arguments of all steps in order, 64 bits each: addresses and scalars. shapes: a row for each step: function,
    offset of its arguments, number of work-groups (total, x, y), work-items of each. counter_bytes: of the steps'
    counters.
    """

    args: Array
    shapes: Array
    counter_bytes: int
