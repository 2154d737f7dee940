"""Rejects kernels with barriers on drivers that sometimes miscompile them."""

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
    """The reason why the driver may miscompile `kernel` with `params` for the placed node, or None."""
    if SHARED_VALUES not in p.device.quirks:
        return None
    for launch in launches_of(kernel, p, params):
        if math.prod(launch.group or (1,)) == 1:
            continue
        options = tuple((k, str(int(v) if isinstance(v, bool) else v)) for k, v in sorted(launch.defines.items()))
        if _has_barrier(program_parts(launch.source or kernel.source, launch.prelude), options):
            return "it uses barriers, across which this driver sometimes merges the private values of work-items"
    return None


@lru_cache(maxsize=1024)
def _has_barrier(parts: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> bool:
    """Whether the compiled branches of the program contain a barrier, directly or through a macro."""
    try:
        return Preprocessed(parts, dict(options)).find(_BARRIER) is not None
    except ValueError:  # a preprocessor condition that cannot be evaluated
        return any(_BARRIER.search(part) for part in parts)
