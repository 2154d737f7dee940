"""ModelRun: one run of a model: it leases executables, enters and runs them, checks their halves and records them.

Segments of imported models, programs of bundles, stored plans, bodies of loops and runs on KV caches all run by it. A
run in half storage whose outputs are infinite or NaN is repeated in float32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import PlacementError
from ...ir.graph import Graph
from ...ir.precision import Precision, PrecisionPolicy
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunRecord, RunTrace
from .run_lock import Access, RunLockHold

if TYPE_CHECKING:
    from ..execute.executable import Executable
    from .background.graph_compiler import Compiler
    from .executable_cache import Compiled, SizedProgram
    from .run_request import RunRequest

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

_EXPONENT = np.uint16(0x7C00)
"""Exponent bits of a half: all set in infinities and NaNs only."""
_LARGE = 1 << 22
"""Number of elements from which a sum is faster than a test of each."""


class ModelRun(RunLockHold):
    """One run of a model, which holds the run lock as `RunLockHold` says. trace: what it did so far."""

    def __init__(self, request: RunRequest, *, throughout: bool = False) -> None:
        super().__init__(request.lock, throughout=throughout)
        self.request = request
        self.record = RunRecord()
        self.trace = RunTrace(run_record=self.record)

    def run(
        self,
        compiled: Compiled,
        at: SizedProgram,
        access: Access,
        arrays: Callable[[], Sequence[Any]],
        targets: Mapping[int, Target] | None = None,
        views: Sequence[int] = (),
        state: Mapping[int, Any] | None = None,
    ) -> tuple[list[Any], Executable] | None:
        """The outputs of `compiled` at some sizes, and the executable that ran; None if it was released.

        arrays: gives the inputs, called with the run lock held. targets, views: as of `Executable.run`. state: buffers
        of state by slot, for a run whose launches are not recorded.
        """
        with self.enter(compiled.executable, at.program, access, state) as lease:
            if lease is None:
                return None
            executable, share = lease
            recorder = self.request.recorder if state is None else None
            outputs, spent = executable.run(arrays(), targets, views, recorder, share=share)
        self.trace.add(spent)
        return outputs, executable

    def note(self, compiled: Compiled, at: SizedProgram | None, executable: Executable | None = None) -> None:
        """Record that `compiled` has run. executable: the one that ran, if it may have been a replica."""
        self.record.add(executable if executable is not None and executable.is_replica else compiled.executable)
        self.record.note(*compiled.notes, *compiled.inherited_notes, *(() if at is None else at.notes))

    def recover(
        self,
        compiler: Compiler,
        compiled: Compiled,
        graph: Graph,
        sizes: tuple[int, ...],
        run: Callable[[Compiled], list[Any]],
        outputs: list[Any],
        waits: bool,
        logged: set[str],
    ) -> tuple[Compiled, list[Any]]:
        """(what to keep for `graph`, outputs to return) after `compiled` gave `outputs` at `sizes`.

        run: runs another executable on the same inputs. waits: only for optimized programs; else generic ones may serve
        first, and the returned `job` makes the optimized ones. logged: notes that the log has.
        If float32 gives infinities too, they are the model's own: half storage stays, and is not checked again.
        """
        if not compiled.may_overflow or is_finite(outputs):
            compiled.is_proven = True
            return compiled, outputs
        self.release()
        again: list[Any] = []
        policy, tuning = PrecisionPolicy(Precision.WIDE), self.request.tuning
        for soon in (False,) if waits else (True, False):
            wide = compiler.compile(graph, self.trace, tuning, sizes=sizes, policy=policy, soon=soon)
            self.acquire()
            again = run(wide)
            if is_finite(again) or not wide.may_overflow:
                break
            self.release()  # host operators in place of generic kernels compute in half
        if not is_finite(again):
            compiled.may_overflow, compiled.overflow_is_own, compiled.is_proven = False, True, True
            return compiled, outputs
        self.trace.overflowed = wide.is_proven = True
        if not self.request.is_trial:
            note = OWN_NOTE if compiler.policy.precision is Precision.FP32 else NOTE
            wide.inherited_notes = (note,)
            if note not in logged:
                logged.add(note)
                _log.warning("graph '%s': %s", graph.name, note)
        return wide, again


def refuse_hosted(nodes: Sequence[str]) -> None:
    """PlacementError if there are nodes that would run on the host."""
    if nodes:
        raise PlacementError("\n  ".join(["strict mode rejects nodes that would run on the host:", *nodes]))


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
