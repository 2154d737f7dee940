"""GrowableTensor: a tensor with spare capacity along one axis, to which a run appends (KV cache)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..lazy_dataclass import dataclass

FEW = 16
"""Most positions that the single-token append kernels add at once."""

SHORT, LONG, PROMPT = 256, 512, 2048
"""Prompt lengths for kernel selection with an open length: SHORT below LONG positions, else PROMPT.

Kernels chosen for PROMPT hold the weights as single-token kernels do.
"""


@dataclass(frozen=True)
class GrowableTensor:
    """An input passed in place of an array: a tensor of `shape` in memory for `capacity` along `axis`.

    present: the name of the output that is the tensor after the run. grows: whether the run appends to the tensor; else
    the tensor has its full capacity and is overwritten in place. narrow: whether memory holds rows as int8
    (ir/constants/int8_rows.py). It has no contents: the caller of the model owns the memory.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int
    capacity: int
    present: str
    grows: bool = True
    narrow: bool = False
