"""GrowableTensor: a tensor at the beginning of memory that is reserved for more of it, where what comes next is
appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

FEW = 16
"""Positions that are added at once by the kernels for single tokens."""

SHORT, LONG, PROMPT = 256, 512, 2048
"""Positions of a prompt, where its length is open: kernels are chosen for SHORT if there are fewer than LONG, else for
PROMPT, as which those for single tokens hold the weights."""


@dataclass(frozen=True)
class GrowableTensor:
    """What arrives as an input in place of an array: a tensor of `shape` in memory for `capacity` along `axis`.

    present: the output that is the tensor after the run. grows: by what is behind it; else it fills its memory, and is
    written into. narrow: the memory holds its rows as int8 (ir/constants/int8_rows.py). No contents: whoever runs the
    model knows the memory.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int
    capacity: int
    present: str
    grows: bool = True
    narrow: bool = False
