"""Overflow fallback: a run in half storage whose outputs are infinite or NaN is repeated in float32."""

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
"""Exponent bits of a half: all set in infinities and NaNs only."""
_LARGE = 1 << 22
"""Number of elements from which a sum is faster than a test of each."""

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
    """Whether no element is infinite or NaN. Called for each token of a decoder in half precision."""
    if a.dtype == np.float16:  # isfinite takes 59 us for 32,000 halves, the bit test 4 us
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
    hold: RunLockHold,
    waits: bool,
    logged: set[str],
) -> tuple[Compiled, list[Any]]:
    """(what to keep for `graph`, outputs to return) after `compiled` gave `outputs` at `sizes`.

    run: runs another executable on the same inputs. waits: only for optimized programs; else generic ones may serve
    first, and the returned `job` makes the optimized ones. logged: notes that the log has.
    If float32 gives infinities too, they are the model's own: half storage stays, and is not checked again.
    """
    if not compiled.may_overflow or is_finite(outputs):
        return compiled, outputs
    hold.release()
    again: list[Any] = []
    for compile_ in (compiler.compile,) if waits else (compiler.compile_soon, compiler.compile):
        wide = compile_(graph, trace, request.tuning, sizes=sizes, policy=PrecisionPolicy(Precision.WIDE))
        hold.acquire()
        again, spent = run(wide)
        trace.add(spent)
        if is_finite(again) or not wide.may_overflow:
            break
        hold.release()  # host operators in place of generic kernels compute in half
    if not is_finite(again):
        compiled.may_overflow, compiled.overflow_is_own = False, True
        return compiled, outputs
    trace.overflowed = True
    if not request.is_trial:
        note = OWN_NOTE if compiler.policy.precision is Precision.FP32 else NOTE
        wide.inherited_notes = (note,)
        if note not in logged:
            logged.add(note)
            _log.warning("graph '%s': %s", graph.name, note)
    return wide, again
