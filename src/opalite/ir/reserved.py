"""Reserved: a tensor at the beginning of memory that is reserved for more of it, where what comes next is appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

FEW = 16
"""Positions that are added at once by the kernels for single tokens."""

PROMPT = 1024
"""Positions of a prompt for which kernels are chosen where its length is open. By their estimates a decoder's products
then take 1.1 times the least time at 2,048 tokens and 2 times at 128; chosen for 128, 2 times at 2,048."""


@dataclass(frozen=True)
class Reserved:
    """What arrives as an input in place of an array: a tensor of `shape` in memory for `capacity` along `axis`.

    present: the output that is the tensor after the run. grows: by what is behind it; else it fills its memory, and is
    written into. narrow: the memory holds its rows as int8 (ir/byte_rows.py). No contents: whoever runs the model knows
    the memory.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int
    capacity: int
    present: str
    grows: bool = True
    narrow: bool = False
