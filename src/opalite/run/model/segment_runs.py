"""SegmentRuns: runs of an imported model, segment by segment, each compiled for the sizes that arrive."""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ...cl.programs.background_throttle import background_planning
from ...importer import ImportRun, ModelImporter, Runner
from ...importer import Task as HostTask
from ...importer.walk.host_tasks import ItemTask, NodeTask, TrimTask
from ...importer.walk.import_run import Selection
from ...importer.walk.loop_body_tasks import BodyTask
from ...importer.walk.segments import GraphOutput, Segment
from ...importer.walk.shape_dependent_inputs import graph_with_hints
from ...plan.program import NodeReport, task_report
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunTrace
from .background.background_compile import CompileJob, Task
from .background.graph_compiler import Compiler
from .background.respecialize import Respecializer
from .background.respecialize_policy import DistantShape, Sizes
from .control_flow.loop_runner import LoopRunner
from .executable_cache import Compiled, ExecutableCache, SizedProgram
from .imported_model import ImportedModel
from .model_run import ModelRun, refuse_hosted
from .plans.plan_files import types_alone
from .plans.plan_keeper import Keeper, PartKeeper, PlanKeeper
from .plans.plan_store import PlanStore
from .route import contents_of, types_key
from .run_lock import Access, RunLock
from .run_request import PLAIN, RunRequest, targets_by_number
from .segment_route import SegmentRoute, has_route

if TYPE_CHECKING:
    from ...plan.program import Program


_ROUTES_KEPT = 16


@dataclass
class Pass:
    """One pass over a model or over a loop's body.

    jobs: gets jobs to submit after the run; None if nothing may be left to the background. feeds: of the model itself,
    None in a body. store: gets plans that the pass makes. only: the one segment of the run with what ran, if nothing
    but host operators follows. parts: what ran. has_bodies: the host ran the body of a loop.
    """

    jobs: list[CompileJob] | None
    feeds: Mapping[str, Any] | None = None
    store: PlanStore | None = None
    only: tuple[Compiled, SizedProgram, Segment, Selection] | None = None
    parts: list[tuple[Segment, Compiled]] = field(default_factory=list)
    has_bodies: bool = False


class SegmentRuns:
    """Runs of an imported model.

    store: of the plans that they make, if these are kept. why_not_kept: the reason if the model has no such plans, ''
    without one. logged: notes in the log.
    """

    def __init__(
        self, imported: ImportedModel, compiler: Compiler, store: PlanStore | None = None, why_not_kept: str = ""
    ) -> None:
        self.imported, self.compiler = imported, compiler
        self.store, self.why_not_kept = store, why_not_kept
        self.executables = ExecutableCache()
        self._routes: OrderedDict[Hashable, SegmentRoute] = OrderedDict()  # by types of inputs
        self.logged: set[str] = set()

    def reset(self) -> None:
        """Forget every segment and its compiled programs."""
        self.imported.reset()
        self.executables.clear()
        self._routes.clear()

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and the trace."""
        tunes = self.compiler.tunes(request.tuning)
        jobs: list[CompileJob] = []
        run_pass = Pass(jobs, feeds, None if tunes else self.store)
        try:
            with ModelRun(request, throughout=tunes) as model_run:
                outputs = self._run(self.imported.importer, feeds, model_run, run_pass)
        finally:
            if jobs:
                self.compiler.submit(jobs)
        if run_pass.only is not None:
            compiled, at, segment, selection = run_pass.only
            whole = partial(self.imported.whole, segment, selection)
            model_run.record.route = compiled.route_at(at, feeds, contents_of(feeds, selection.looked_at), whole)
        elif not run_pass.has_bodies and self._has_route(feeds, run_pass.parts):
            routes, key = self._routes, types_key(feeds)
            if key not in routes:
                routes[key] = SegmentRoute(self.imported.importer, self.executables, feeds, model_run.record)
                if len(routes) > _ROUTES_KEPT:
                    routes.popitem(last=False)
            model_run.record.route = routes[key]
        return outputs, model_run.trace

    @staticmethod
    def _has_route(feeds: Mapping[str, Any], parts: Sequence[tuple[Segment, Compiled]]) -> bool:
        """Whether runs of several segments need no more than the segments: no bodies of loops, no checks of outputs."""
        if not parts or not all(type(v) is ndarray and not v.dtype.hasobject for v in feeds.values()):
            return False
        return all(has_route(compiled) for _, compiled in parts)

    def _run(self, importer: ModelImporter, feeds: Mapping[str, Any], model_run: ModelRun, run_pass: Pass) -> list[Any]:
        """Outputs of a model or of a loop's body."""
        request, trace, jobs = model_run.request, model_run.trace, run_pass.jobs
        targets = {} if run_pass.feeds is None else request.targets

        def run_body(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
            return self._run(body, inner, model_run, Pass(jobs))

        loops = LoopRunner(self, run_body, model_run)
        clock = time.perf_counter
        run, throttled = start(importer, feeds, loops, model_run)
        pending = model_run.track(run)
        uploaded = pending.uploaded
        strict, observer = self.compiler.options.strict, request.observer
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
                model_run.release()
                found = self._compile(segment, model_run, run, run_pass)
            if request.waits and found[0].job is not None and not found[0].job.is_over:
                model_run.release()
                found = self._wait_for_optimized(segment, sizes, found)
            compiled, at = found
            distance = DistantShape.NO
            if request.lock is not None and jobs is not None and self.compiler.background is not None:
                distance = self.executables.record_sizes(segment, compiled, sizes)
                if distance is DistantShape.DUE:
                    jobs.append(self._respecializer(segment, compiled, sizes, request.lock, run, run_pass))
            selection = None if run_pass.feeds is None else run.selection
            is_only = selection is not None
            # A segment runs once in a run, so outputs may stay in its memory, unless they may overflow: then the host
            # looks at them.
            views = () if compiled.may_overflow else [i for i, wanted in enumerate(segment.on_host) if not wanted]
            access = self._access(compiled, is_only, bool(views or targets), request)
            kept = _kept_outputs(segment, targets) if targets and compiled.is_proven else None
            fed: list[Any] = []

            def arrays(run: ImportRun = run, fed: list[Any] = fed) -> list[Any]:
                """The inputs now that the run has the lock: another run may have copied them to the host."""
                fed += [uploaded[id(v)][1] if id(v) in uploaded else v for v in run.feeds]
                return fed

            started = clock()
            ran = model_run.run(compiled, at, access, arrays, kept, views)
            if ran is None:
                self.compiler.counters.add_wait("optimized", clock() - started)
                continue  # with the executable that has replaced this one
            outputs, executable = ran
            pending.add(outputs[i] for i in views)
            if segment.next_stage is not None:
                tensors = zip(run.feeds, executable.io.input_views(fed), strict=True)
                uploaded.update((id(v), (v, t)) for v, t in tensors if t is not None)
            if kept is None:

                def run_again(other: Compiled, run: ImportRun = run) -> list[Any]:
                    outputs, spent = other.executable.run(run.feeds, recorder=request.recorder)
                    trace.add(spent)
                    return outputs

                compiled, outputs = self.check_halves(segment, compiled, sizes, run_again, outputs, model_run, jobs)
                at = compiled.at(sizes) or at
            if selection is not None and distance is not DistantShape.WATCHED:
                run_pass.only = compiled, at, segment, selection
            run_pass.parts.append((segment, compiled))
            model_run.note(compiled, at, executable)
            model_run.release_if_idle()
            if observer is not None:
                observer.segment(segment, sizes, at.program, importer.loop)
            started = clock()
            with throttled:
                run.advance(outputs)
            trace.host_s += clock() - started
            if strict:
                _refuse_tasks(run)
        model_run.untrack(pending)
        model_run.record.note(*loops.notes.values())
        if observer is not None:
            for probe in run.probes:
                observer.probe(probe)
        for task in run.tasks_run:
            run_pass.has_bodies |= isinstance(task, BodyTask)
            model_run.record.add_host(_task_report(task))
        return run.outputs

    @staticmethod
    def _access(compiled: Compiled, is_only: bool, stays: bool, request: RunRequest) -> Access:
        """The access of a run to `compiled`. is_only: nothing else runs. stays: outputs stay on the device."""
        if is_only and compiled.executable.tier == "generic":
            # These runs are long and few: other runs of known sizes should not wait for them.
            return Access.EXCLUSIVE if stays else Access.UNLOCKED
        if is_only and compiled.is_proven and not (compiled.may_overflow or stays or request.recorder):
            return Access.SHARED
        return Access.EXCLUSIVE

    def check_halves(
        self,
        segment: Segment,
        compiled: Compiled,
        sizes: Sizes,
        run: Callable[[Compiled], list[Any]],
        outputs: list[Any],
        model_run: ModelRun,
        jobs: list[CompileJob] | None = None,
    ) -> tuple[Compiled, list[Any]]:
        """(what later runs of `segment` go through, outputs): see `ModelRun.recover`. jobs: as of Pass."""
        waits = model_run.request.waits or jobs is None
        believed, outputs = model_run.recover(
            self.compiler, compiled, segment.graph, sizes, run, outputs, waits, self.logged
        )
        if believed is not compiled:
            self.executables.keep(segment, believed, instead_of=compiled)
            if jobs is not None:
                self._set_job(segment, believed, jobs)
        return believed, outputs

    def _set_job(self, segment: Segment, compiled: Compiled, jobs: list[CompileJob]) -> None:
        """Have the job that replaces a generic executable submitted after the run."""
        if compiled.job is not None:
            compiled.job.set_target(self.executables, segment, compiled)
            jobs.append(compiled.job)

    def _compile(
        self, segment: Segment, model_run: ModelRun, run: ImportRun, run_pass: Pass
    ) -> tuple[Compiled, SizedProgram]:
        request, jobs, sizes = model_run.request, run_pass.jobs, run.sizes
        keeper = self._keeper(segment, run, run_pass) or self._part_keeper(segment, run, run_pass)

        def make() -> Compiled:
            found = None if keeper is None else keeper.find(sizes, request.waits)
            if found is not None:
                return found.compiled(found.variant, sizes, model_run.trace)
            soon = not request.waits and jobs is not None
            compiled = self.compiler.compile(
                segment.graph, model_run.trace, request.tuning, sizes=sizes, soon=soon, keeper=keeper
            )
            if self.why_not_kept or (keeper is None and run_pass.feeds is None and self.store is not None):
                why = self.why_not_kept or "it is for the body of a loop that runs step by step"
                compiled.inherited_notes = (*compiled.inherited_notes, f"plan: not kept in the cache: {why}")
            if jobs is not None:
                self._set_job(segment, compiled, jobs)
            return compiled

        return self.executables.find_or_make(segment, sizes, make)

    def _keeper(self, segment: Segment, run: ImportRun, run_pass: Pass) -> PlanKeeper | None:
        """The keeper of plans of `segment`; None if they are not stored."""
        choice = run.selection
        if run_pass.store is None or run_pass.feeds is None or choice is None:
            return None
        return run_pass.store.keeper(self.imported, segment, run_pass.feeds, choice)

    def _part_keeper(self, segment: Segment, run: ImportRun, run_pass: Pass) -> Keeper | None:
        """The keeper of the plan of one of several segments, or before operators on the host; None in a loop's body."""
        is_whole = run.selection is not None and not segment.tasks
        if run_pass.store is None or run_pass.feeds is None or run.stage is None or is_whole:
            return None
        return PartKeeper(run_pass.store, self.imported, run.stage.identity(segment))

    def _respecializer(
        self, segment: Segment, compiled: Compiled, sizes: Sizes, lock: RunLock, run: ImportRun, run_pass: Pass
    ) -> CompileJob:
        """The job that plans `segment` for `sizes`, which recur and are far from those of `compiled`."""
        segment_of = weakref.ref(segment)
        keeper = self._keeper(segment, run, run_pass)
        forget = None
        if keeper is not None and run_pass.store is not None and run_pass.feeds is not None:
            forget = partial(run_pass.store.record_failed_attempt, types_alone(run_pass.feeds))

        def prepare() -> tuple[Program, Task] | None:
            found = segment_of()
            if found is None:
                return None

            on_built = None if keeper is None else keeper.keep
            return self.compiler.prepare(graph_with_hints(found.graph, sizes), sizes=sizes, on_built=on_built)

        job = Respecializer(prepare, lock, forget)
        job.set_base_plan(self.executables, segment, compiled, sizes)
        return job

    def _wait_for_optimized(
        self, segment: Segment, sizes: Sizes, found: tuple[Compiled, SizedProgram]
    ) -> tuple[Compiled, SizedProgram]:
        """Wait for the optimized executable that replaces `found`; `found` if there is none."""
        started = time.perf_counter()
        assert found[0].job is not None
        with self.compiler.rt.programs.expedite_builds():
            found[0].job.wait()
        self.compiler.counters.add_wait("optimized", time.perf_counter() - started)
        return self.executables.find(segment, sizes) or found


def start(
    importer: ModelImporter, feeds: Mapping[str, Any], runner: Runner, model_run: ModelRun
) -> tuple[ImportRun, ExitStack]:
    """A run up to its first segment, and the `with` block in which the run continues.

    Before anything is imported, the run lock is released, and the block slows down its thread.
    """
    throttled = ExitStack()

    def before_import() -> None:
        model_run.release()
        throttled.enter_context(background_planning())

    started = time.perf_counter()
    on_task = None if model_run.request.observer is None else model_run.request.observer.task
    with throttled:
        run = ImportRun(importer, feeds, runner, before_import, on_task)
    model_run.trace.import_s += time.perf_counter() - started
    return run, throttled


def _kept_outputs(segment: Segment, targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of the graph's output, for those that nothing else in the model reads."""
    read = {n for task in segment.tasks for n in task.inputs}
    if segment.next_stage is not None:
        read.update(segment.next_stage.incoming)
    outputs = [(name, s.index) for name, s in segment.exports.items() if isinstance(s, GraphOutput)]
    return targets_by_number(outputs, {n: t for n, t in targets.items() if n not in read})


def _refuse_tasks(run: ImportRun) -> None:
    """Raise PlacementError if operators ran on the host between two segments."""
    refuse_hosted([f"{task.label}: {task.reason}" for task in run.tasks_run if isinstance(task, NodeTask)])


def _task_report(task: HostTask) -> NodeReport:
    # A trim only cuts off rows that the device has computed and counted: part of the transfer.
    target = "transfer" if isinstance(task, TrimTask) else "host"
    report = task_report(task.label, task.label.split(" ")[0], task.reason, target)
    if isinstance(task, ItemTask):
        node = task.item.node
        report.model_nodes = ((node.op_type, node.name or next((o for o in node.outputs if o), "")),)
    return report
