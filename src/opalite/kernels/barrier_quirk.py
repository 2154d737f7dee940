"""Kernels whose work-items meet at barriers, for drivers that compile such kernels wrongly at times."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from ..ir.device.device_family import SHARED_VALUES
from .kernel import Kernel, Params, Problem
from .kernel_sources import program_parts
from .node_launches import launches_of
from .opencl_preprocessor import Preprocessed

_BARRIER = re.compile(r"\bbarrier\s*\(")


def barrier_refusal(kernel: Kernel, p: Problem, params: Params) -> str | None:
    """Why the device's driver may compute the placed node wrongly by `kernel` with `params`, or None."""
    if SHARED_VALUES not in p.device.quirks:
        return None
    for launch in launches_of(kernel, p, params):
        if math.prod(launch.group or (1,)) == 1:
            continue
        options = tuple((k, str(int(v) if isinstance(v, bool) else v)) for k, v in sorted(launch.defines.items()))
        if _has_barrier(program_parts(launch.source or kernel.source, launch.prelude), options):
            return "its work-items meet at barriers, where this driver at times lets them share a value"
    return None


@lru_cache(maxsize=1024)
def _has_barrier(parts: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> bool:
    """Whether a barrier, or a macro with one, is in the branches of the program that are compiled."""
    try:
        return Preprocessed(parts, dict(options)).find(_BARRIER) is not None
    except ValueError:  # a condition that it cannot evaluate
        return any(_BARRIER.search(part) for part in parts)
