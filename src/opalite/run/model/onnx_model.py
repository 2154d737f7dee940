"""OnnxModel: a session's model from an ONNX file, run segment by segment, each compiled for the sizes that arrive."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ...cl.programs.background_throttle import background_planning
from ...errors import PlacementError
from ...importer import ImportRun, ModelImporter, Task
from ...importer.walk.host_tasks import NodeTask, TrimTask
from ...importer.walk.segments import GraphOutput, Segment
from ...importer.walk.shape_dependent_inputs import graph_with_hints
from ...ir.device.device_info import DeviceInfo
from ...plan.program import NodeReport, Program, task_report
from ...plan.template.program_template import Template
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunRecord, RunTrace
from .background.background_compile import CompileJob
from .background.graph_compiler import Compiler, PendingExecutable
from .background.respecialize import Respecializer
from .background.respecialize_policy import DistantShape
from .control_flow.loop_runner import LoopRunner
from .executable_cache import Compiled, ExecutableCache, SizedProgram
from .fp16_overflow_fallback import recover
from .imported_model import ImportedModel
from .run_lock import Access, RunLock, RunLockHold
from .run_request import PLAIN, RunRequest, targets_by_number

OnPlanned = Callable[["Program | Template", Segment, tuple[str, ...]], None]
"""Called with a program or template, the segment that it was planned of, and notes, before it is built.

Only segments that are the whole model are reported.
"""


@dataclass
class Pass:
    """One pass over a model or over a loop's body.

    jobs: gets jobs to submit after the run; None if nothing may be left to the background. is_model: the pass is over
    the model itself. only: the one segment of the run with what ran, if nothing but host operators follows.
    """

    jobs: list[CompileJob] | None
    is_model: bool = False
    on_planned: OnPlanned | None = None
    only: tuple[Compiled, SizedProgram, tuple[int, ...], Segment] | None = None


class OnnxModel:
    """An ONNX model of a session, imported and run segment by segment."""

    def __init__(self, imported: ImportedModel, compiler: Compiler) -> None:
        self.imported = imported
        self.compiler = compiler
        self.executables = ExecutableCache()
        self.repeats, self.draws = imported.repeats, imported.draws
        self.inputs, self.outputs, self.overridable = imported.inputs, imported.outputs, imported.overridable
        self.opset, self.meta = imported.opset, imported.meta
        self.logged: set[str] = set()  # notes that the log has

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The declared shapes, with a guess for open dimensions."""
        return self.imported.example_shapes(device)

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays, checked against the model."""
        return self.imported.check_feeds(feeds)

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled programs."""
        return [self.executables]

    def reset(self) -> None:
        """Forget every segment and its compiled programs."""
        self.imported.reset()
        self.executables.clear()

    def run(
        self, feeds: Mapping[str, Any], request: RunRequest = PLAIN, on_planned: OnPlanned | None = None
    ) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and the trace."""
        run_record = RunRecord()
        trace = RunTrace(run_record=run_record)
        tunes = (request.tuning.level or self.compiler.options.tune) != "none"
        jobs: list[CompileJob] = []
        run_pass = Pass(jobs, True, on_planned)
        try:
            with RunLockHold(request.lock, throughout=tunes) as hold:
                outputs = self._run(self.imported.importer, feeds, request, trace, hold, run_pass)
        finally:
            if jobs:
                self.compiler.submit(jobs)
        if run_pass.only is not None:
            compiled, at, sizes, segment = run_pass.only
            run_record.route = compiled.route_at(at, feeds, lambda: self.imported.whole(at.program, segment, sizes))
        return outputs, trace

    def _run(
        self,
        importer: ModelImporter,
        feeds: Mapping[str, Any],
        request: RunRequest,
        trace: RunTrace,
        hold: RunLockHold,
        run_pass: Pass,
    ) -> list[Any]:
        """Outputs of a model or of a loop's body."""
        inside = replace(request, targets={}) if request.targets else request
        jobs = run_pass.jobs

        def run_body(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
            return self._run(body, inner, inside, trace, hold, Pass(jobs))

        loops = LoopRunner(self, run_body, inside, trace, hold)
        throttled = ExitStack()

        def before_import() -> None:
            hold.release()
            throttled.enter_context(background_planning())

        clock = time.perf_counter
        started = clock()
        with throttled:
            run = ImportRun(importer, feeds, loops, before_import)
        trace.import_s += clock() - started
        run_record = trace.run_record
        assert run_record is not None
        pending = hold.track(run)
        uploaded = pending.uploaded
        strict = self.compiler.options.strict
        if strict:
            _refuse_tasks(run)
        while run.segment is not None:
            if request.check is not None:
                request.check()
            segment, sizes = run.segment, run.sizes
            started = clock()
            found = self.executables.find(segment, sizes)
            trace.import_s += clock() - started
            if found is None:
                hold.release()
                found = self._compile(segment, trace, request, run, run_pass)
            if request.waits and found[0].job is not None and not found[0].job.is_over:
                hold.release()
                found = self._wait_for_optimized(segment, sizes, found)
            compiled, at = found
            executable = compiled.executable
            distance = DistantShape.NO
            if request.lock is not None and jobs is not None and self.compiler.background is not None:
                distance = self.executables.record_sizes(segment, compiled, sizes)
                if distance is DistantShape.DUE:
                    keep = run_pass.on_planned if run.is_whole_model else None
                    jobs.append(self._respecializer(segment, compiled, sizes, request.lock, keep))
            is_only = run.is_single_segment and run_pass.is_model
            # A segment runs once in a run, so outputs may stay in its memory, unless they may overflow: then the host
            # looks at them.
            views = () if compiled.may_overflow else [i for i, wanted in enumerate(segment.on_host) if not wanted]
            stays = bool(views or request.targets)
            if is_only and executable.tier == "generic":
                # These runs are long and few: other runs of known sizes should not wait for them.
                access = Access.EXCLUSIVE if stays else Access.UNLOCKED
            elif is_only and compiled.is_proven and not (compiled.may_overflow or stays or request.recorder):
                access = Access.SHARED
            else:
                access = Access.EXCLUSIVE
            started = clock()
            with hold.enter(executable, at.program, access) as lease:
                if lease is None:
                    self.compiler.counters.add_wait("optimized", clock() - started)
                    continue  # with the executable that has replaced this one
                executable, share = lease
                arrays = run.feeds  # after the run lock was taken: another run may have spilled them to the host
                kept = kept_outputs(segment, request.targets) if request.targets and compiled.is_proven else None
                fed = [uploaded[id(v)][1] if id(v) in uploaded else v for v in arrays]
                outputs, spent = executable.run(fed, kept, views, request.recorder, share=share)
            trace.add(spent)
            pending.add(outputs[i] for i in views)
            if segment.next_stage is not None:
                tensors = zip(arrays, executable.inputs_on_device(fed), strict=True)
                uploaded.update((id(v), (v, t)) for v, t in tensors if t is not None)
            if kept is None:
                believed, outputs = recover(
                    self.compiler,
                    compiled,
                    segment.graph,
                    sizes,
                    lambda c, r=run: c.executable.run(r.feeds, recorder=request.recorder),  # type: ignore[misc]
                    *(outputs, trace, request, hold, request.waits or jobs is None, self.logged),
                )
                believed.is_proven = True
                if believed is not compiled:
                    compiled = self.executables.keep(segment, believed, instead_of=compiled)
                    if believed.job is not None and jobs is not None:
                        believed.job.set_target(self.executables, segment, believed)
                        jobs.append(believed.job)
                    at = compiled.at(sizes) or at
            if is_only and distance is not DistantShape.WATCHED:
                run_pass.only = compiled, at, sizes, segment
            run_record.add(executable if executable.is_replica else compiled.executable)
            run_record.note(*compiled.notes, *compiled.inherited_notes, *at.notes)
            hold.release_if_idle()
            started = clock()
            with throttled:
                run.advance(outputs)
            trace.host_s += clock() - started
            if strict:
                _refuse_tasks(run)
        hold.untrack(pending)
        run_record.note(*loops.notes.values())
        for task in run.tasks_run:
            run_record.add_host(_task_report(task))
        return run.outputs

    def _compile(
        self, segment: Segment, trace: RunTrace, request: RunRequest, run: ImportRun, run_pass: Pass
    ) -> tuple[Compiled, SizedProgram]:
        on_planned, jobs = run_pass.on_planned, run_pass.jobs
        on_built = None
        if on_planned is not None and run.is_whole_model:

            def on_built(program: Program | Template, notes: tuple[str, ...]) -> None:
                on_planned(program, segment, notes)

        compile_ = self.compiler.compile if request.waits or jobs is None else self.compiler.compile_soon
        sizes = run.sizes

        def make() -> Compiled:
            compiled = compile_(segment.graph, trace, request.tuning, sizes=sizes, on_built=on_built)
            if compiled.job is not None:
                assert jobs is not None
                compiled.job.set_target(self.executables, segment, compiled)
                jobs.append(compiled.job)
            return compiled

        return self.executables.find_or_make(segment, sizes, make)

    def _respecializer(
        self, segment: Segment, compiled: Compiled, sizes: tuple[int, ...], lock: RunLock, on_planned: OnPlanned | None
    ) -> CompileJob:
        """The job that plans `segment` for `sizes`, which recur and are far from those of `compiled`."""
        segment_of = weakref.ref(segment)

        def on_built(program: Program | Template, notes: tuple[str, ...]) -> None:
            found = segment_of()
            if on_planned is not None and found is not None:
                on_planned(program, found, notes)

        def prepare() -> PendingExecutable | None:
            found = segment_of()
            if found is None:
                return None
            return self.compiler.prepare(graph_with_hints(found.graph, sizes), sizes=sizes, on_built=on_built)

        job = Respecializer(prepare, lock, getattr(on_planned, "forget", _do_nothing))
        job.set_base_plan(self.executables, segment, compiled, sizes)
        return job

    def _wait_for_optimized(
        self, segment: Segment, sizes: tuple[int, ...], found: tuple[Compiled, SizedProgram]
    ) -> tuple[Compiled, SizedProgram]:
        """Wait for the optimized executable that replaces `found`; `found` if there is none."""
        started = time.perf_counter()
        assert found[0].job is not None
        with self.compiler.rt.programs.expedite_builds():
            found[0].job.wait()
        self.compiler.counters.add_wait("optimized", time.perf_counter() - started)
        return self.executables.find(segment, sizes) or found


def _do_nothing() -> None:
    """Nothing was stored."""


def kept_outputs(segment: Segment, targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of the graph's output, for those that nothing else in the model reads."""
    read = {n for task in segment.tasks for n in task.inputs}
    if segment.next_stage is not None:
        read.update(segment.next_stage.incoming)
    outputs = [(name, s.index) for name, s in segment.exports.items() if isinstance(s, GraphOutput)]
    return targets_by_number(outputs, {n: t for n, t in targets.items() if n not in read})


def _refuse_tasks(run: ImportRun) -> None:
    """PlacementError if operators had to run on the host between two segments."""
    hosted = [f"  {task.label}: {task.reason}" for task in run.tasks_run if isinstance(task, NodeTask)]
    if hosted:
        raise PlacementError("strict mode rejects nodes that would run on the host:\n" + "\n".join(hosted))


def _task_report(task: Task) -> NodeReport:
    # A trim only cuts off rows that the device has computed and counted: part of the transfer.
    target = "transfer" if isinstance(task, TrimTask) else "host"
    return task_report(task.label, task.label.split(" ")[0], task.reason, target)
