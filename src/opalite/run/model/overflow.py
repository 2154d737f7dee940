"""What half could not hold is computed again in float32: a run whose outputs are infinite or NaN is not believed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.graph import Graph
from ...ir.precision import Precision, PrecisionPolicy
from ..execute.trace import Timing

if TYPE_CHECKING:
    from ..execute.executable import Executable
    from .compiler import Compiler

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)

NOTE = (
    "half storage overflowed: outputs were infinite or NaN, and are computed in fp32 instead. "
    "`opalite verify MODEL --write-policy FILE` finds the nodes that need it, so that the others stay in fp16"
)

OWN_NOTE = (
    "the model's own half tensors overflowed: outputs were infinite or NaN, and what lies between inputs and outputs "
    "is stored in fp32 instead"
)


def is_finite(outputs: Sequence[Any]) -> bool:
    """Whether no floating-point output has an infinity or NaN. A finite sum, which is cheaper to get, proves it."""
    floats = [a for a in outputs if isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.size]
    with np.errstate(all="ignore"):
        return all(np.isfinite(a.sum()) or np.isfinite(a).all() for a in floats)


def recover(
    compiler: Compiler, executable: Executable, graph: Graph, feeds: Sequence[Any], outputs: list[Any], timing: Timing
) -> tuple[Executable, list[Any]]:
    """(executable to keep for `graph`, outputs to believe) after `executable` gave `outputs`.

    Where float32 is not finite either, infinities are the model's own: half stays, and is not asked again.
    """
    if not executable.may_overflow or is_finite(outputs):
        return executable, outputs
    wide = compiler.compile(graph, timing, policy=PrecisionPolicy(Precision.WIDE))
    wide.recorder = compiler.recorder
    again, spent = wide.run(feeds)
    timing.add(spent)
    if not is_finite(again):
        executable.may_overflow = False
        return executable, outputs
    compiler.overflowed = True
    note = OWN_NOTE if compiler.policy().precision is Precision.FP32 else NOTE
    if note not in compiler.notes and not compiler.is_trial:
        compiler.notes.append(note)
        _log.warning("graph '%s': %s", graph.name, note)
    return wide, again
