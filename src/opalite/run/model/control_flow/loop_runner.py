"""LoopRunner: runs the bodies of ONNX Loop and Scan, one iteration at a time or many iterations in one call.

Many iterations run in one call if the body is one program and the host has nothing to do between them: loop-carried
values keep type and shape, and no shape depends on them. The importer asks before the first iteration, and again after
some that it ran one by one, when the program may have been built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....importer import ImportRun, ModelImporter
from ....importer.walk.loop_body_tasks import LoopCarried
from ....importer.walk.segments import GraphOutput, PassThrough, Segment
from ...execute.loops.loop_iterations import FromInput, FromOutput, LoopCarryPlan, Source
from ..run_lock import Access

if TYPE_CHECKING:
    from ..executable_cache import SizedProgram
    from ..model_run import ModelRun
    from ..segment_runs import SegmentRuns

LONGEST_S = 0.1  # of iterations in one call; between calls the run may be cancelled, and other threads run
FIRST_ITERATIONS = 256  # in the first call, before their time is known
MAX_ITERATIONS = 1 << 16
MAX_ROW_BYTES = 1 << 26  # of scan outputs in one call


@dataclass(frozen=True)
class CarriedValues:
    """Loop-carried values of a body.

    plan: values passed between iterations on the device. states: for each state of the loop its number in the plan, or
    the input that it equals in all iterations. row_bytes: of scan outputs in an iteration.
    """

    plan: LoopCarryPlan
    states: tuple[int | str, ...]
    row_bytes: int


class LoopRunner:
    """The Runner of one run of a model (importer/walk/loop_body_tasks.py); notes: a sentence for each body."""

    def __init__(
        self, runs: SegmentRuns, run: Callable[[ModelImporter, Mapping[str, Any]], Sequence[Any]], model_run: ModelRun
    ) -> None:
        """run: returns the outputs of one iteration."""
        self.notes: dict[str, str] = {}  # how the iterations of each body run, by its name
        self._executables, self._run, self._model_run = runs.executables, run, model_run
        request = model_run.request
        self._may_repeat = request.recorder is None and not runs.compiler.tunes(request.tuning)

    def __call__(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of one iteration."""
        return self._run(importer, feeds)

    def repeat(
        self,
        importer: ModelImporter,
        feeds: Mapping[str, Any],
        carried: LoopCarried,
        first: int,
        most: int | None,
        scanned: Sequence[Any],
    ) -> tuple[int, bool, list[Any], list[Any]] | None:
        """See BatchedRunner."""
        if not self._may_repeat:
            return None
        found = self._repeat(importer, feeds, carried, first, most, scanned)
        how = f"as runs of their own: {found}" if isinstance(found, str) else found[0]
        self.notes[importer.name] = f"loop body '{importer.name}': its iterations run {how}"
        return None if isinstance(found, str) else found[1]

    def _repeat(
        self,
        importer: ModelImporter,
        feeds: Mapping[str, Any],
        carried: LoopCarried,
        first: int,
        most: int | None,
        scanned: Sequence[Any],
    ) -> tuple[str, tuple[int, bool, list[Any], list[Any]]] | str:
        """The trace and results of iterations in one call, or the reason why they need several calls."""
        if not all(type(v) is np.ndarray for v in feeds.values()):
            return "not everything is a tensor"
        hold = self._model_run
        request = hold.request
        if request.check is not None:
            request.check()
        run = ImportRun(importer, feeds, self, hold.release)
        segment, sizes = run.segment, run.sizes
        if segment is None or not run.is_whole_model:
            return "the body is more than one program, because it depends on contents"
        ready = self._executables.find(segment, sizes)
        if ready is None:
            return "its program has not been made yet"
        compiled, at = ready
        executable = compiled.executable
        if request.waits and compiled.job is not None and not compiled.job.is_over:
            return "its optimized programs have not been built yet"
        if compiled.may_overflow:
            return "half storage may overflow, so the host checks outputs"
        if carried not in at.carry_plans:
            at.carry_plans[carried] = _find_carried(segment, at, carried, feeds)
        values: CarriedValues | None = at.carry_plans[carried]
        if values is None:
            return "a loop-carried value does not come from its program"
        arrays = run.feeds
        with hold.enter(executable, at.program, Access.EXCLUSIVE) as lease:
            if lease is None:
                return "another executable is replacing it"
            iterations = executable.iterations(values.plan)
            if isinstance(iterations, str):
                hold.release_if_idle()
                return iterations
            count = _count(iterations.iteration_s, most, values.row_bytes)
            result, spent = iterations.run(arrays, first, count, [a[:count] for a in scanned])
            executable.count_iterations(result.made)
        hold.release_if_idle()
        spent.tier = executable.tier
        hold.trace.add(spent)
        hold.note(compiled, at)
        states = [result.states[s] if isinstance(s, int) else feeds[s] for s in values.states]
        return iterations.how, (result.made, result.continues, states, result.rows)


def _count(iteration_s: float, most: int | None, row_bytes: int) -> int:
    """Number of iterations for one call."""
    count = int(LONGEST_S / iteration_s) if iteration_s else FIRST_ITERATIONS
    count = max(1, min(count, MAX_ITERATIONS, MAX_ROW_BYTES // max(1, row_bytes)))
    return count if most is None else min(count, most)


def _find_carried(
    segment: Segment, at: SizedProgram, carried: LoopCarried, feeds: Mapping[str, Any]
) -> CarriedValues | None:
    """The loop-carried values of a body; None if the host has to compute any."""
    inputs = {name: i for i, name in enumerate(segment.inputs)}
    counter, (condition, goes) = carried.counter, carried.condition
    changing = {counter, *carried.scanned, *(name for name, _ in carried.states)}

    def source(name: str) -> Source | str | None:
        """The source of an output: on the device, or the name of an input that never changes; else None."""
        found = segment.exports.get(name)
        if isinstance(found, GraphOutput):
            return FromOutput(found.index)
        if isinstance(found, PassThrough):
            name = found.name
        elif found is not None:
            return None
        if name in changing and name in inputs:
            return FromInput(inputs[name])
        return name if name in feeds else None

    states: list[tuple[Source, int | None]] = []
    numbers: list[int | str] = []
    for taken, given in carried.states:
        found = source(given)
        if isinstance(found, FromInput) and found.index == inputs.get(taken):
            found = taken
        if found is None or (isinstance(found, str) and found != taken):
            return None
        if isinstance(found, str):
            numbers.append(found)  # unchanged
            continue
        numbers.append(len(states))
        states.append((found, inputs.get(taken)))
    rows = [source(name) for name in carried.rows]
    if not all(isinstance(r, FromOutput | FromInput) for r in rows):
        return None
    going = source(goes) if goes else condition
    if isinstance(going, FromInput) or (isinstance(going, str) and going != condition):
        return None
    if going is None and not _is_true(segment.exports.get(goes)):
        return None
    scanned = [inputs[n] for n in carried.scanned if n in inputs]
    if len(scanned) < len(carried.scanned):
        return None
    plan = LoopCarryPlan(
        inputs.get(counter),
        tuple(states),
        tuple(r for r in rows if isinstance(r, FromOutput | FromInput)),
        going.index if isinstance(going, FromOutput) else None,
        tuple(scanned),
    )
    ports = at.program.inputs, at.program.outputs
    row_ports = [ports[isinstance(r, FromOutput)][r.index] for r in plan.rows]
    return CarriedValues(plan, tuple(numbers), sum(math.prod(p.shape) * p.dtype.size for p in row_ports))


def _is_true(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1 and bool(value.reshape(-1)[0])
