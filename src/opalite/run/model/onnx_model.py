"""OnnxModel: a session's model from an ONNX file - run segment by segment, each compiled for the sizes that arrive."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from ...cl.programs.background_throttle import background_planning
from ...errors import PlacementError
from ...importer import ImportRun, ModelImporter, Task
from ...importer.walk.host_tasks import NodeTask, TrimTask
from ...importer.walk.segments import GraphOutput, Segment
from ...importer.walk.shape_dependent_inputs import graph_moved
from ...ir.device.device_info import DeviceInfo
from ...plan.node_report import NodeReport, task_report
from ...plan.program import Program
from ...plan.template.program_template import Template
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunRecord, RunTrace
from ..execute.strategies.time_slicing import DeviceShare
from .background.background_compile import CompileJob
from .background.graph_compiler import Compiler, PendingExecutable
from .background.respecialize import Respecializer
from .background.respecialize_policy import DistantShape
from .control_flow.loop_runner import LoopRunner
from .executable_cache import Compiled, ExecutableCache, SizedProgram
from .fp16_overflow_fallback import recover
from .imported_model import ImportedModel
from .repeat_run_fast_path import RepeatRun
from .run_lock import RunLock, RunLockHold
from .run_request import PLAIN, RunRequest

OnWhole = Callable[["Program | Template", Segment, tuple[str, ...]], None]
"""Told of the program, or its template, of a segment that is the whole model, and of notes on it, before it is made
ready."""

Ready = tuple[Compiled, SizedProgram, tuple[int, ...]]
"""What ran, its program, and the sizes of that."""


class OnnxModel:
    """An ONNX model behind a session."""

    def __init__(self, imported: ImportedModel, compiler: Compiler) -> None:
        self.imported = imported
        self.compiler = compiler
        self.executables = ExecutableCache()
        self.repeats, self.draws = imported.repeats, imported.draws
        self.inputs, self.outputs, self.overridable = imported.inputs, imported.outputs, imported.overridable
        self.opset, self.meta = imported.opset, imported.meta
        self.told: set[str] = set()

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The declared shapes, with a guess for open dimensions."""
        return self.imported.example_shapes(device)

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays, checked against the model."""
        return self.imported.check_feeds(feeds)

    @property
    def caches(self) -> list[ExecutableCache]:
        """What holds what was compiled."""
        return [self.executables]

    def reset(self) -> None:
        """Forget every segment and what was compiled."""
        self.imported.reset()
        self.executables.clear()

    def _steady(self, found: Ready, segment: Segment, feeds: Mapping[str, Any]) -> RepeatRun | None:
        """How runs like this one go, of `segment` alone, at most with operators on the host after it."""
        compiled, at, sizes = found
        if compiled.is_replaced or compiled.may_overflow or not all(type(v) is np.ndarray for v in feeds.values()):
            return None
        if compiled.executable.tier == "generic":
            return None  # it does not run in turn
        if at.steady is None:
            whole = self.imported.whole(at.program, segment, sizes)
            if whole is not None:
                at.steady = RepeatRun(compiled.executable, at.program, whole, feeds)
                at.steady.is_current = not compiled.is_replaced  # by another thread, in this moment
        return at.steady

    def run(
        self, feeds: Mapping[str, Any], request: RunRequest = PLAIN, on_whole: OnWhole | None = None
    ) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and what the run did."""
        run_record = RunRecord()
        trace = RunTrace(run_record=run_record)
        last: list[tuple[Ready, Segment]] = []
        tunes = (request.tuning.level or self.compiler.options.tune) != "none"
        made: list[CompileJob] = []
        try:
            with RunLockHold(request.lock, whole=tunes) as turn:
                outputs = self._run(self.imported.importer, feeds, request, trace, turn, on_whole, last, made)
        finally:
            if made:
                self.compiler.submit(made)
        if last:
            run_record.steady = self._steady(*last[0], feeds)
        return outputs, trace

    def _run(
        self,
        importer: ModelImporter,
        feeds: Mapping[str, Any],
        request: RunRequest,
        trace: RunTrace,
        turn: RunLockHold,
        on_whole: OnWhole | None = None,
        last: list[tuple[Ready, Segment]] | None = None,
        made: list[CompileJob] | None = None,
    ) -> list[Any]:
        """Outputs of a model or of a loop's body. last: gets the segment that is all of the run but for what the host
        does after it. made: gets what is to be done once the run is over."""
        inside = replace(request, targets={}) if request.targets else request

        def run_body(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
            return self._run(body, inner, inside, trace, turn, made=made)

        bodies = LoopRunner(self, run_body, inside, trace, turn)
        beside = ExitStack()

        def before_import() -> None:
            turn.leave()
            beside.enter_context(background_planning())

        clock = time.perf_counter
        started = clock()
        with beside:
            run = ImportRun(importer, feeds, bodies, before_import)
        trace.import_s += clock() - started
        run_record = trace.run_record
        assert run_record is not None
        parked = turn.watch(run)
        uploaded = parked.uploaded
        strict = self.compiler.options.strict
        if strict:
            _refuse_tasks(run)
        while run.segment is not None:
            if request.check is not None:
                request.check()
            segment, sizes = run.segment, run.sizes
            started = clock()
            ready = self.executables.find(segment, sizes)
            trace.import_s += clock() - started
            if ready is None:
                turn.leave()
                ready = self._compile(segment, trace, request, run, on_whole, made)
            if request.waits and ready[0].job is not None and not ready[0].job.is_over:
                turn.leave()
                ready = self._settled(segment, sizes, ready)
            compiled, at = ready
            executable = compiled.executable
            far = DistantShape.NO
            if request.lock is not None and made is not None and self.compiler.background is not None:
                far = self.executables.look_far(segment, compiled, sizes)
                if far is DistantShape.DUE:
                    keep = on_whole if run.is_whole_model else None
                    made.append(self._respecializer(segment, compiled, sizes, request.lock, keep))
            # Halves that may overflow must be looked at; a segment runs once in a run, so that its memory may be lent.
            views = () if compiled.may_overflow else [i for i, wanted in enumerate(segment.on_host) if not wanted]
            # A run by general programs takes long, and soon is over with them: those of known sizes need not wait.
            is_general = executable.tier == "generic" and run.is_single_segment and last is not None
            is_apart = is_general and not (views or request.targets)
            may_leave = run.is_single_segment and last is not None and compiled.is_proven and not compiled.may_overflow
            asks = may_leave and not (is_general or views or request.targets or request.recorder)
            with ExitStack() as held:
                room: DeviceShare | None = None
                if is_apart:
                    turn.leave()
                    room = _room_of(request)
                elif not asks:
                    turn.take()
                elif (twin := held.enter_context(turn.beside(executable, at.program))) is not None:
                    executable, room = twin, _room_of(request)
                arrays = run.feeds
                started = clock()
                if not held.enter_context(executable.entered(at.program)):
                    self.compiler.counters.add_wait("background", clock() - started)
                    continue  # with the executable that has replaced this one
                kept = kept_outputs(segment, request.targets) if request.targets and compiled.is_proven else None
                given = [uploaded[id(v)][1] if id(v) in uploaded else v for v in arrays]
                outputs, spent = executable.run(given, kept, views, request.recorder, share=room)
            trace.add(spent)
            parked.add(outputs[i] for i in views)
            if segment.next_stage is not None:
                there = zip(arrays, executable.inputs_on_device(given), strict=True)  # of what was uploaded here
                uploaded.update((id(v), (v, t)) for v, t in there if t is not None)
            if kept is None:
                found, outputs = recover(
                    self.compiler,
                    compiled,
                    segment.graph,
                    sizes,
                    lambda c, r=run: c.executable.run(r.feeds, recorder=request.recorder),  # type: ignore[misc]
                    *(outputs, trace, request, turn, request.waits or made is None, self.told),
                )
                found.is_proven = True
                if found is not compiled:
                    compiled = self.executables.keep(segment, found, instead_of=compiled)
                    if found.job is not None and made is not None:
                        found.job.set_target(self.executables, segment, found)
                        made.append(found.job)
                    at = compiled.at(sizes) or at
            if last is not None and run.is_single_segment and far is not DistantShape.WATCHED:
                last.append(((compiled, at, sizes), segment))
            run_record.add(executable if executable.is_replica else compiled.executable)
            run_record.note(*compiled.notes, *compiled.lasting, *at.notes)
            turn.pause()
            started = clock()
            with beside:
                run.advance(outputs)
            trace.host_s += clock() - started
            if strict:
                _refuse_tasks(run)
        turn.forget(parked)
        run_record.note(*bodies.told.values())
        for task in run.tasks_run:
            run_record.add_host(_task_report(task))
        return run.outputs

    def _compile(
        self,
        segment: Segment,
        trace: RunTrace,
        request: RunRequest,
        run: ImportRun,
        on_whole: OnWhole | None,
        made: list[CompileJob] | None,
    ) -> tuple[Compiled, SizedProgram]:
        tell = None
        if on_whole is not None and run.is_whole_model:

            def tell(program: Program | Template, notes: tuple[str, ...]) -> None:
                on_whole(program, segment, notes)

        compile_ = self.compiler.compile if request.waits or made is None else self.compiler.compile_soon
        sizes = run.sizes

        def make() -> Compiled:
            compiled = compile_(segment.graph, trace, request.tuning, sizes=sizes, on_built=tell)
            if compiled.job is not None:
                assert made is not None
                compiled.job.set_target(self.executables, segment, compiled)
                made.append(compiled.job)
            return compiled

        return self.executables.find_or_make(segment, sizes, make)

    def _respecializer(
        self, segment: Segment, compiled: Compiled, sizes: tuple[int, ...], lock: RunLock, on_whole: OnWhole | None
    ) -> CompileJob:
        """What makes a plan of `segment` for `sizes`, which come back and which `compiled` was not made for."""
        segment_of = weakref.ref(segment)

        def tell(program: Program | Template, notes: tuple[str, ...]) -> None:
            found = segment_of()
            if on_whole is not None and found is not None:
                on_whole(program, found, notes)

        def prepare() -> PendingExecutable | None:
            found = segment_of()
            if found is None:
                return None
            return self.compiler.prepare(graph_moved(found.graph, sizes), sizes=sizes, on_built=tell)

        job = Respecializer(prepare, lock, getattr(on_whole, "forget", _do_nothing))
        job.set_base_plan(self.executables, segment, compiled, sizes)
        return job

    def _settled(
        self, segment: Segment, sizes: tuple[int, ...], ready: tuple[Compiled, SizedProgram]
    ) -> tuple[Compiled, SizedProgram]:
        """What takes the place of `ready`, which was made for now."""
        started = time.perf_counter()
        assert ready[0].job is not None
        with self.compiler.rt.programs.expedite_builds():
            ready[0].job.wait()
        self.compiler.counters.add_wait("optimized", time.perf_counter() - started)
        return self.executables.find(segment, sizes) or ready


def _do_nothing() -> None:
    """Nothing was kept."""


def kept_outputs(segment: Segment, targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of the graph's output, for those that nothing else in the model asks for."""
    asked = {n for task in segment.tasks for n in task.inputs}
    if segment.next_stage is not None:
        asked.update(segment.next_stage.incoming)
    found: dict[int, Target] = {}
    shared: set[int] = set()
    for name, source in segment.exports.items():
        if isinstance(source, GraphOutput):
            if name in targets and name not in asked:
                found.setdefault(source.index, targets[name])
            else:
                shared.add(source.index)
    return {index: target for index, target in found.items() if index not in shared}


def _room_of(request: RunRequest) -> DeviceShare | None:
    """What a run that does not have the turn has of the device: all, while nobody waits for it."""
    lock = request.lock
    return lock.beside if lock is not None and lock.is_shared else None


def _refuse_tasks(run: ImportRun) -> None:
    """PlacementError if operators had to run on the host between two segments."""
    hosted = [f"  {task.label}: {task.reason}" for task in run.tasks_run if isinstance(task, NodeTask)]
    if hosted:
        raise PlacementError("strict mode refuses nodes that would run on the host:\n" + "\n".join(hosted))


def _task_report(task: Task) -> NodeReport:
    # A trim only cuts off rows that the device has computed and counted: part of the transfer.
    target = "transfer" if isinstance(task, TrimTask) else "host"
    return task_report(task.label, task.label.split(" ")[0], task.reason, target)
