"""What half could not hold is computed again in float32: a run whose outputs are infinite or NaN is not believed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.graph import Graph
from ...ir.precision import Precision, PrecisionPolicy
from ..execute.run_trace import RunTrace

if TYPE_CHECKING:
    from .background.graph_compiler import Compiler
    from .executable_cache import Compiled
    from .run_lock import RunLockHold
    from .run_request import RunRequest

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)

NOTE = (
    "half storage overflowed: outputs were infinite or NaN, and are computed in fp32 instead. "
    "`opalite verify MODEL --write-policy FILE` finds the nodes that need it, so that the others stay in fp16"
)

_EXPONENT = np.uint16(0x7C00)
"""Bits of a half that are all set in infinities and NaNs alone."""
_LARGE = 1 << 22
"""Numbers from which on a sum is faster than an answer for each."""

OWN_NOTE = (
    "the model's own half tensors overflowed: outputs were infinite or NaN, and what lies between inputs and outputs "
    "is stored in fp32 instead"
)


def is_finite(outputs: Sequence[Any]) -> bool:
    """Whether no floating-point output has an infinity or NaN."""
    for a in outputs:
        if isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.size and not _all_finite(a):
            return False
    return True


def _all_finite(a: Array) -> bool:
    """The cheapest way for so many numbers of that type; every token of a decoder in halves comes by here."""
    if a.dtype == np.float16:  # NumPy takes each half apart: 59 us for 32,000, and 4 by their bits
        return bool((a.view(np.uint16) & _EXPONENT).max() < _EXPONENT)
    if a.size < _LARGE:
        return bool(np.isfinite(a).all())
    with np.errstate(all="ignore"):
        return bool(np.isfinite(a.sum()) or np.isfinite(a).all())  # a finite sum proves it


def recover(
    compiler: Compiler,
    compiled: Compiled,
    graph: Graph,
    sizes: tuple[int, ...],
    run: Callable[[Compiled], tuple[list[Any], RunTrace]],
    outputs: list[Any],
    trace: RunTrace,
    request: RunRequest,
    turn: RunLockHold,
    waits: bool,
    told: set[str],
) -> tuple[Compiled, list[Any]]:
    """(what to keep for `graph`, outputs to believe) after `compiled` gave `outputs` at `sizes`.

    run: gives the outputs of what takes its place on the same inputs, and what that took. waits: for programs made for
    the graph; else general ones may serve, and the `job` of what is given back makes the others. told: what the log has
    had already.
    Where float32 is not finite either, infinities are the model's own: half stays, and is not asked again.
    """
    if not compiled.may_overflow or is_finite(outputs):
        return compiled, outputs
    turn.leave()
    again: list[Any] = []
    for compile_ in (compiler.compile,) if waits else (compiler.compile_soon, compiler.compile):
        wide = compile_(graph, trace, request.tuning, sizes=sizes, policy=PrecisionPolicy(Precision.WIDE))
        turn.take()
        again, spent = run(wide)
        trace.add(spent)
        if is_finite(again) or not wide.may_overflow:
            break
        turn.leave()  # the host, in the place of general programs, computes halves as halves
    if not is_finite(again):
        compiled.may_overflow, compiled.is_asked = False, True
        return compiled, outputs
    trace.overflowed = True
    if not request.is_trial:
        note = OWN_NOTE if compiler.policy.precision is Precision.FP32 else NOTE
        wide.lasting = (note,)
        if note not in told:
            told.add(note)
            _log.warning("graph '%s': %s", graph.name, note)
    return wide, again
