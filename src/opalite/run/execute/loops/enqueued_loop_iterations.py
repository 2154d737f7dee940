"""EnqueuedLoopIterations: runs a program as the body of a loop on the device's queue.

It serves programs that the calling thread does not execute, by single launches or linked kernels. Loop-carried values
are copied on the device, in order with the launches. The host waits once, at the end, or after each iteration if a
condition decides whether another one follows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.queue.launch_sequence import LaunchSequence
from ....errors import OpaliteError
from ....plan.program import DownloadStep, Program, UploadStep
from ..run_trace import RunTrace
from .loop_iterations import (
    CHANGES,
    HOSTED,
    FromInput,
    FromOutput,
    IterationResult,
    LoopCarryPlan,
    Source,
    carries_fit,
    loop_carried,
)

if TYPE_CHECKING:
    from ..strategies.queue_strategy import Queue

Array = np.ndarray[Any, Any]
TypedSlot = tuple[int, np.dtype[Any], tuple[int, ...]]
"""A slot on the device, and the type and shape of its value."""


class EnqueuedLoopIterations:
    """The iterations of one plan by one Queue. iteration_s: seconds of an iteration, measured last; 0 before that."""

    how = "one after the other on the device's queue"

    def __init__(
        self,
        queue: Queue,
        plan: LoopCarryPlan,
        inputs: Sequence[Sequence[TypedSlot]],
        outputs: Sequence[TypedSlot | None],
    ) -> None:
        """inputs, outputs: the places of the program's inputs and outputs; an input may have several or none."""
        self.iteration_s = 0.0
        self._queue, self._plan, self._inputs = queue, plan, inputs
        self._rt, self._io = queue.instance.rt, queue.instance.io
        self._launches = [p for p in queue.phases if isinstance(p, LaunchSequence)]
        self._constants = _constants(queue.instance.program)

        def slot_of(source: Source) -> TypedSlot:
            found = outputs[source.index] if isinstance(source, FromOutput) else inputs[source.index][0]
            assert found is not None, "checked by enqueued_iterations_of"
            return found

        self._condition = None if plan.condition is None else slot_of(FromOutput(plan.condition))
        self._rows = [slot_of(source) for source in plan.rows]
        self._states = [slot_of(source) for source, _ in plan.states]
        # Inputs of an iteration that are read after the next one's are written.
        self._held: dict[int, Any] = {}
        for source, _ in plan.states:
            if isinstance(source, FromInput):
                slot = slot_of(source)[0]
                self._held.setdefault(slot, self._rt.allocate(_nbytes(slot_of(source))))
        self._moves = [
            (number, place)
            for number, (_, target) in enumerate(plan.states)
            for place in (() if target is None else inputs[target])
        ]

    def run(
        self, feeds: Sequence[Any], first: int, most: int, scanned: Sequence[Array] = ()
    ) -> tuple[IterationResult, RunTrace]:
        """See Iterations.run."""
        rt = self._rt
        if not self._queue.begin():
            return self._plain().run(feeds, first, most, scanned)
        resident = rt.set_resident_worker(None)
        try:
            return self._run(feeds, first, most, scanned)
        except BaseException:
            with suppress(OpaliteError):
                rt.finish()  # before memory is freed
            raise
        finally:
            if resident is not None:
                resident.dismiss_workers()

    def _run(
        self, feeds: Sequence[Any], first: int, most: int, scanned: Sequence[Array]
    ) -> tuple[IterationResult, RunTrace]:
        rt, plan = self._rt, self._plan
        clock = time.perf_counter
        started = clock()
        pending: list[Any] = [self._write(step.slot, value, step.dtype.np) for step, value in self._constants]
        for places, value in zip(self._inputs, feeds, strict=True):
            pending += [self._write(slot, value, dtype) for slot, dtype, _ in places]
        running: list[tuple[Any, Any, int]] = []  # (rows, buffer, bytes of a row)
        sources: list[tuple[int, Any]] = (
            [] if plan.counter is None else [(plan.counter, np.arange(first, first + most))]
        )
        sources += zip(plan.scanned, scanned, strict=True)
        for number, values in sources:
            for slot, dtype, shape in self._inputs[number]:
                rows = np.ascontiguousarray(values, dtype).reshape(len(values), *shape)
                held = rt.allocate(rows.nbytes)
                pending.append((rows, rt.write(held, rows, wait=False)))
                running.append((held, self._buffer(slot), rows.nbytes // len(rows)))
        columns = [rt.allocate(most * _nbytes(place)) for place in self._rows]
        uploaded = clock()
        made, continues = self._make(most, running, columns)
        states = [
            self._read(self._memory(s, p), p[1], p[2]) for (s, _), p in zip(plan.states, self._states, strict=True)
        ]
        rows_read = [self._read(c, d, (made, *shape)) for c, (_, d, shape) in zip(columns, self._rows, strict=True)]
        if not self._queue.finish():
            return self._plain().run(feeds, first, most, scanned)
        ended = clock()
        self.iteration_s = (ended - uploaded) / made
        trace = RunTrace(
            upload_s=uploaded - started,
            compute_s=ended - uploaded,
            strategy="loop_iterations",
            launches=made * len(self._queue.instance.launch_steps),
            bytes_up=sum(_nbytes(place) for places in self._inputs for place in places),
            bytes_down=sum(a.nbytes for a in (*states, *rows_read)),
            waits=1 if self._condition is None else made,
        )
        return IterationResult(made, continues, states, rows_read), trace

    def _plain(self) -> EnqueuedLoopIterations:
        """The iterations by single launches, which serve where linked kernels do not."""
        found = self._queue.instance.selector.plain.iterations(self._plan)
        assert isinstance(found, EnqueuedLoopIterations)
        return found

    def _make(self, most: int, running: Sequence[tuple[Any, Any, int]], columns: Sequence[Any]) -> tuple[int, bool]:
        """Make up to `most` iterations. Returns their number, and whether the condition for another one is true."""
        rt = self._rt
        rows = [
            (self._buffer(place[0]), column, _nbytes(place)) for place, column in zip(self._rows, columns, strict=True)
        ]
        sizes = {place[0]: _nbytes(place) for places in self._inputs for place in places}
        held = [(self._buffer(slot), memory, sizes[slot]) for slot, memory in self._held.items()]
        moves = []
        for number, place in self._moves:
            source, _ = self._plan.states[number]
            moves.append((self._memory(source, self._states[number]), self._buffer(place[0]), _nbytes(place)))
        for iteration in range(most):
            for recording in self._launches:
                recording.run()
            for memory, copy, nbytes in held:
                rt.copy(memory, copy, nbytes)
            for memory, column, nbytes in rows:
                rt.copy(memory, column, nbytes, 0, iteration * nbytes)
            if self._condition is not None:
                flag = self._read(self._buffer(self._condition[0]), np.dtype(np.uint8), (1,))
                if not flag[0]:
                    return iteration + 1, False
            if iteration + 1 < most:
                for memory, place, nbytes in moves:
                    rt.copy(memory, place, nbytes)
                for memory, place, nbytes in running:
                    rt.copy(memory, place, nbytes, (iteration + 1) * nbytes, 0)
        return most, True

    def _buffer(self, slot: int) -> Any:
        return self._io.memory(slot).buffer

    def _memory(self, source: Source, place: TypedSlot) -> Any:
        """The buffer of a state after an iteration."""
        return self._held[place[0]] if isinstance(source, FromInput) else self._buffer(place[0])

    def _write(self, slot: int, value: Any, dtype: np.dtype[Any]) -> Any:
        return value, self._io.memory(slot).write(value, dtype)

    def _read(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """The buffer's content, once all that is on the queue has finished."""
        array = np.empty(shape, dtype)
        if array.size:
            self._rt.read(memory, array)
        return array


def enqueued_iterations_of(queue: Queue, plan: LoopCarryPlan) -> EnqueuedLoopIterations | str:
    """A runner of the iterations of `plan`, or the reason why each iteration is a run."""
    program = queue.instance.program
    if not all(isinstance(p, LaunchSequence | UploadStep | DownloadStep) for p in queue.phases):
        return HOSTED
    inputs: list[list[TypedSlot]] = []
    for port in program.inputs:
        steps = (s for s in program.steps if isinstance(s, UploadStep) and s.host == port.host)
        inputs.append([(s.slot, s.dtype.np, tuple(port.shape)) for s in steps])
    downloads = {s.host: s for s in program.steps if isinstance(s, DownloadStep)}
    found = [downloads.get(port.host) for port in program.outputs]
    outputs: list[TypedSlot | None] = [None if s is None else (s.slot, s.dtype.np, tuple(s.shape)) for s in found]
    if not carries_fit(plan, inputs, outputs, lambda place: place[1:]):
        return CHANGES
    carried = [outputs[s.index] if isinstance(s, FromOutput) else inputs[s.index][0] for s, _ in loop_carried(plan)]
    if not all(place is not None and _nbytes(place) for place in carried):
        return CHANGES
    return EnqueuedLoopIterations(queue, plan, inputs, outputs)


def _nbytes(place: TypedSlot) -> int:
    return math.prod(place[2]) * place[1].itemsize


def _constants(program: Program) -> list[tuple[UploadStep, Any]]:
    """Uploads of the program's own constants."""
    held = program.host_consts
    return [(s, held[s.host]) for s in program.steps if isinstance(s, UploadStep) and s.host in held]
