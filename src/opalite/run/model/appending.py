"""AppendingRuns: runs of a model whose caches stay where they are, what is new being appended to them in place."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ...cl.beside_runs import planning
from ...cl.reserved_tensor import ReservedTensor
from ...importer.walk.importing import ModelImporter, Run
from ...importer.walk.segments import Segment
from ...ir.dtype import DType
from ...ir.reserved import Reserved
from ...plan.program import Program
from ..execute.trace import Ran, RunTrace
from .executables import Compiled, SizedProgram
from .growing import Growing, find_moving
from .onnx_model import OnnxModel, kept_outputs
from .overflow import recover
from .request import RunRequest
from .turn import Turn

Array = np.ndarray[Any, Any]


class NotAppendedError(Exception):
    """Why a model's caches cannot stay where they are: a signal to whoever then feeds them as arrays."""


class AppendingRuns:
    """How runs of a model go on caches of a state. Stands for the model in a session's run.

    caches: of the next run, by the input that each is. filled: those that do not grow, but are written into.
    """

    def __init__(self, model: OnnxModel, presents: Mapping[str, str], filled: Collection[str] = ()) -> None:
        """presents: the output that each cache becomes, by the input that it is."""
        self._model, self._presents, self.filled = model, presents, frozenset(filled)
        self.caches: Mapping[str, ReservedTensor] = {}
        self._growing: Growing | None = None  # how runs like the last one go
        self._fed: Mapping[str, Any] = {}  # to the last run
        self._last: tuple[Segment, tuple[int, ...], int] | None = None  # with its sizes, and length

    def twin(self) -> AppendingRuns:
        """The same for another state."""
        other = AppendingRuns(self._model, self._presents, self.filled)
        other._growing, other._last = self._growing, self._last
        return other

    def check_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """All of the model's feeds, checked; or those given, where runs like the last one need no more."""
        growing = self._growing
        if growing is not None and growing.serves(feeds, self.caches):
            return feeds
        self._growing = None
        past = {
            n: Reserved(t.dtype, t.shape, t.axis, t.capacity, self._presents[n], n not in self.filled, t.is_narrow)
            for n, t in self.caches.items()
        }
        return self._model.check_feeds({**feeds, **past})

    def run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, None for the caches, which have grown then; and what the run did.

        NotAppendedError, before anything has run, where the model is not made so.
        """
        growing = self._growing
        if growing is not None:
            with Turn(request.lock) as turn:
                turn.take()
                found = growing.run(feeds, self.caches, request.targets)
            if found is not None:
                return found
            self._growing = None
            feeds = self.check_feeds(feeds)
        self._fed = {n: v for n, v in feeds.items() if n not in self.caches}
        trace = RunTrace(ran=Ran())
        with Turn(request.lock) as turn, ExitStack() as beside:

            def before_import() -> None:
                turn.leave()
                beside.enter_context(planning())

            started = time.perf_counter()
            run = self._model.imported.importer.begin(feeds, _no_bodies, before_import)
            segment, sizes = self._checked(run), run.sizes
            lengths = segment.lengths_at(sizes)
            trace.import_s += time.perf_counter() - started
            compiled, at = self._compiled(segment, sizes, trace, request)
            beside.close()
            turn.take()

            def run_on_caches(which: Compiled) -> tuple[list[Any], RunTrace]:
                return self._execute(run, segment, which, sizes, request)

            outputs, spent = run_on_caches(compiled)
            trace.add(spent)
            # What was appended by a run that is not believed is written again: lengths are as before.
            model = self._model
            believed, outputs = recover(
                model.compiler,
                compiled,
                segment.graph,
                sizes,
                run_on_caches,
                outputs,
                trace,
                request,
                turn,
                waits=True,
                told=model.told,
            )
            believed.is_proven = True
            if believed is not compiled:
                compiled = model.executables.keep(segment, believed, instead_of=compiled)
                at = compiled.at(sizes) or at
            assert trace.ran is not None
            trace.ran.add(compiled.executable)
            trace.ran.note(*compiled.notes, *compiled.lasting, *at.notes)
            for name, length in lengths.items():
                self.caches[name].length = length
        self._grow(run, segment, compiled, sizes, max(lengths.values()))
        run.advance(outputs)
        return run.outputs, trace

    def _checked(self, run: Run) -> Segment:
        """The one segment of the run, which appends to all caches."""
        segment = run.segment
        if segment is None or segment.following is not None:
            raise NotAppendedError("the model is more than one program, as what it computes depends on contents")
        for name, why in segment.joined.items():
            raise NotAppendedError(f"'{name}': {why}")
        if any(n in self._presents.values() for task in segment.tasks for n in task.inputs):
            raise NotAppendedError("operators on the host read the caches")
        if any(n not in segment.lengths for n in self.caches):
            raise NotAppendedError("not all caches become outputs of one program")
        return segment

    def _compiled(
        self, segment: Segment, sizes: tuple[int, ...], trace: RunTrace, request: RunRequest
    ) -> tuple[Compiled, SizedProgram]:
        model = self._model

        def make() -> Compiled:
            return model.compiler.compile(segment.graph, trace, request.tuning, sizes=sizes)

        return model.executables.find_or_make(segment, sizes, make)

    def _execute(
        self, run: Run, segment: Segment, compiled: Compiled, sizes: tuple[int, ...], request: RunRequest
    ) -> tuple[list[Any], RunTrace]:
        """Outputs of the segment's graph, None for those that are caches, which stay as they were; and the trace."""
        at = compiled.at(sizes)
        assert at is not None
        executable, reserved = compiled.executable, segment.graph.reserved
        lasting = {i for i, _ in reserved}
        arrays = [v for i, v in enumerate(run.feeds) if i not in lasting]
        made = {o for _, o in reserved}
        others = [o for o in range(len(segment.graph.outputs)) if o not in made]
        # Halves that may overflow are looked at until a first run has proved them, as in other runs.
        keeps = request.targets and (compiled.is_proven or not compiled.may_overflow)
        targets = kept_outputs(segment, request.targets) if keeps else {}
        kept = {others.index(o): target for o, target in targets.items() if o not in made}
        with executable.lock:
            started = time.perf_counter()
            executable.lie_in(self._memory(segment, at.program))
            if executable.program is not at.program:
                executable.resize(at.program)
            ready_s = time.perf_counter() - started
            found, spent = executable.run(arrays, kept)
        spent.build_s += ready_s
        outputs: list[Any] = [None] * len(segment.graph.outputs)
        for number, value in zip(others, found, strict=True):
            outputs[number] = value
        return outputs, spent

    def _memory(self, segment: Segment, program: Program) -> dict[int, Any]:
        """Where the caches lie, by slot, stored as the program has them."""
        memory = {}
        for port, (number, _) in zip(program.reserved, segment.graph.reserved, strict=True):
            cache = self.caches[segment.inputs[number]]
            if port.dtype is not DType.of(cache.stored):
                if not cache.is_own:
                    raise NotAppendedError(f"the program stores the caches as {port.dtype}")
                try:
                    cache.store(port.dtype.np)
                except OverflowError as e:
                    raise NotAppendedError(str(e)) from e
            memory[port.slot] = cache.tensor.buffer
        return memory

    def _grow(self, run: Run, segment: Segment, compiled: Compiled, sizes: tuple[int, ...], length: int) -> None:
        """Be ready for the next run, if it goes on from this one as this one did from the last."""
        last, self._last = self._last, (segment, sizes, length)
        if self.filled or last is None or last[0] is not segment or not run.is_chosen or length <= last[2]:
            return
        arrival = segment.arrival
        assert arrival is not None
        steps = [n - m for n, m in zip(sizes, last[1], strict=True)]
        steps[arrival.capacity] = 0
        moving = find_moving(compiled, sizes, steps, length - last[2], length, arrival.capacity)
        if moving is not None and all(type(v) is np.ndarray for n, v in self._fed.items()):
            fixed = {n: self._fed[n] for n in run.by_contents if n in self._fed}
            self._growing = Growing(self._model, segment, compiled, moving, self._fed, sizes, fixed)


def _no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise NotAppendedError("the host runs the body of a loop")
