"""LoopRunner: how a session runs the bodies of loops - trip by trip as models of their own, or many trips at once.

Many at once go where the body is one program whose trips need nothing of the host between them: what one hands to the
next keeps its type and shape, and no shape depends on it. The importer asks before a loop's first trip, and again after
some that it ran one by one, for the program may not be there yet.
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

if TYPE_CHECKING:
    from ...execute.run_trace import RunTrace
    from ..executable_cache import SizedProgram
    from ..onnx_model import OnnxModel
    from ..run_lock import RunLockHold
    from ..run_request import RunRequest

LONGEST_S = 0.1  # of trips that are made at once: in between the run may be called off, and others take their turn
FIRST_TRIPS = 256  # made at once where nothing is known of their time
MOST_TRIPS = 1 << 16
MOST_ROW_BYTES = 1 << 26  # of what they collect


@dataclass(frozen=True)
class Handing:
    """plan: what passes between trips on the device. states: for each of the loop's, its number in the plan, or the
    input that stays what it was."""

    plan: LoopCarryPlan
    states: tuple[int | str, ...]
    row_bytes: int


class LoopRunner:
    """The Runner of one run of a model; `repeat` is described by importer/walk/loop_body_tasks.py."""

    def __init__(
        self,
        model: OnnxModel,
        run: Callable[[ModelImporter, Mapping[str, Any]], Sequence[Any]],
        request: RunRequest,
        trace: RunTrace,
        turn: RunLockHold,
    ) -> None:
        """run: gives the outputs of one trip."""
        self.told: dict[str, str] = {}  # how the trips of each body are made, in a sentence
        self._model, self._run = model, run
        self._request, self._trace, self._turn = request, trace, turn
        tunes = (request.tuning.level or model.compiler.options.tune) != "none"
        self._may_repeat = request.recorder is None and not tunes

    def __call__(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of one trip."""
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
        """See Repeater."""
        if not self._may_repeat:
            return None
        found = self._repeat(importer, feeds, carried, first, most, scanned)
        how = f"as runs of their own: {found}" if isinstance(found, str) else found[0]
        self.told[importer.name] = f"loop body '{importer.name}': its trips are made {how}"
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
        """How trips were made and what came of them, or why they cannot be made at once."""
        if not all(type(v) is np.ndarray for v in feeds.values()):
            return "not everything is a tensor"
        request, turn = self._request, self._turn
        if request.check is not None:
            request.check()
        run = ImportRun(importer, feeds, self, turn.leave)
        segment, sizes = run.segment, run.sizes
        if segment is None or not run.is_whole_model:
            return "the body is more than one program, as what it computes depends on contents"
        ready = self._model.executables.find(segment, sizes)
        if ready is None:
            return "its program has not been made yet"
        compiled, at = ready
        executable = compiled.executable
        if request.waits and compiled.job is not None and not compiled.job.is_over:
            return "the programs made for it have not been built yet"
        if compiled.may_overflow:
            return "halves may overflow, so that outputs must be looked at"
        if carried not in at.handings:
            at.handings[carried] = _handing(segment, at, carried, feeds)
        handing: Handing | None = at.handings[carried]
        if handing is None:
            return "what a trip hands to the next comes from elsewhere than its program"
        arrays = run.feeds
        turn.take()
        with executable.entered(at.program) as is_there:
            if not is_there:
                return "another executable is replacing it"
            trips = executable.iterations(handing.plan)
            if isinstance(trips, str):
                turn.pause()
                return trips
            count = _count(trips.iteration_s, most, handing.row_bytes)
            result, spent = trips.run(arrays, first, count, [a[:count] for a in scanned])
            executable.count_iterations(result.made)
        turn.pause()
        spent.tier = executable.tier
        self._trace.add(spent)
        run_record = self._trace.run_record
        if run_record is not None:
            run_record.add(executable)
            run_record.note(*compiled.notes, *compiled.lasting, *at.notes)
        states = [result.states[s] if isinstance(s, int) else feeds[s] for s in handing.states]
        return trips.how, (result.made, result.continues, states, result.rows)


def _count(iteration_s: float, most: int | None, row_bytes: int) -> int:
    """How many trips to make at once."""
    count = int(LONGEST_S / iteration_s) if iteration_s else FIRST_TRIPS
    count = max(1, min(count, MOST_TRIPS, MOST_ROW_BYTES // max(1, row_bytes)))
    return count if most is None else min(count, most)


def _handing(segment: Segment, at: SizedProgram, carried: LoopCarried, feeds: Mapping[str, Any]) -> Handing | None:
    """What trips of the segment hand on; None where that takes the host."""
    inputs = {name: i for i, name in enumerate(segment.inputs)}
    counter, (condition, goes) = carried.counter, carried.condition
    changing = {counter, *carried.scanned, *(name for name, _ in carried.states)}

    def source(name: str) -> Source | str | None:
        """Where an output comes from: the device, an input that is the same in all trips, or somewhere else."""
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
            numbers.append(found)  # as it came
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
    return Handing(plan, tuple(numbers), sum(math.prod(p.shape) * p.dtype.size for p in row_ports))


def _is_true(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size == 1 and bool(value.reshape(-1)[0])
