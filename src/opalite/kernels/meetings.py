"""Kernels whose work-items meet at barriers, for drivers that compile such kernels wrongly at times."""

from __future__ import annotations

import math
import re
from functools import cache

from ..ir.device_family import SHARED_VALUES
from .base import Kernel, Params, Problem
from .launches import launches_of
from .sources import read_source

_BARRIER = re.compile(r"\bbarrier\b")


def meeting(kernel: Kernel, p: Problem, params: Params) -> str | None:
    """Why the device's driver may compute the placed node wrongly by `kernel` with `params`, or None."""
    if SHARED_VALUES not in p.device.quirks:
        return None
    for launch in launches_of(kernel, p, params):
        if math.prod(launch.group or (1,)) > 1 and _has_barrier(launch.source or kernel.source):
            return "its work-items meet at barriers, where this driver at times lets them share a value"
    return None


@cache
def _has_barrier(source: str) -> bool:
    return _BARRIER.search(read_source(source)) is not None
