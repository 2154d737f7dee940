"""Compiler: compiles one imported graph to an Executable, for a runtime and a session's options."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ....cl.programs.background_throttle import background_planning
from ....cl.programs.build_parallelism import worker_count
from ....cl.programs.program_cache import Spec
from ....cl.runtime import Runtime
from ....cl.runtime_counters import ProgramCounts
from ....errors import BuildError, DeviceError, OpaliteError
from ....ir.graph import Graph
from ....ir.precision import Precision, PrecisionPolicy
from ....knobs import LEVELS
from ....lazy_dataclass import dataclass
from ....plan.program import LaunchStep, Program
from ...execute.executable import Executable
from ...execute.run_trace import RunTrace
from ...execute.strategies.megakernel_builder import megakernel_parts
from ..compile_options import CompileOptions
from ..control_flow.host_onnx_operators import onnx_runner
from ..executable_cache import Compiled
from ..run_request import AS_OPENED, TuneRequest
from ..session_counters import SessionCounters
from .background_compile import MIN_RELEASED_BYTES, BackgroundCompiler, CompileJob, SpareCompileJob, Task
from .plan_graph import (
    OnBuilt,
    compute_largest,
    constant_bytes,
    exclude_failed,
    plan_for_sizes,
    plan_generic,
    plan_or_none,
    specs,
    stage_weights,
)
from .respecialize_policy import Sizes

if TYPE_CHECKING:
    from ....kernels.kernel import Tier
    from ....plan.planner import Planned, PlanOptions
    from ....plan.template.program_template import Template
    from ..plans.plan_keeper import Keeper

_log = logging.getLogger(__name__)

Policy: TypeAlias = PrecisionPolicy | None
"""The precision of every node; None for the session's."""

MOST_LEFT_OUT = 3
"""Kernels whose programs may fail while one graph is compiled. If more fail, the driver builds nothing at all."""

MIN_NODES_PLANNED_LATER = 16
"""Nodes of a graph from which on planning for optimized programs takes longer than a run by generic ones."""

BUILT_FIRST = 8
"""Programs for each worker that a caller waits for because earlier processes left them unbuilt: about two seconds.
Without a wait, short processes never get there: a worker takes as long to start as they live.
"""

STEPS_A_PROGRAM = 4
"""Steps of a plan for each optimized program: 2 to 4 in models of so many nodes. If more generic programs are missing
than that suggests of optimized ones, both plans are compared.
"""


@dataclass(frozen=True)
class Compiler:
    """Compiles graphs. Frozen: `by` makes one for another precision.

    background: compiles optimized executables while runs use generic ones; None if callers wait for them. counters: of
    plans and programs.
    """

    rt: Runtime
    options: CompileOptions
    background: BackgroundCompiler | None = None
    counters: SessionCounters = field(default_factory=SessionCounters)

    def tunes(self, tuning: TuneRequest = AS_OPENED) -> bool:
        """Whether graphs are tuned before they are compiled."""
        return (tuning.level or self.options.tune) != "none"

    def by(self, precision: str | PrecisionPolicy) -> Compiler:
        """The same compiler for another precision."""
        return replace(self, options=replace(self.options, precision=precision))

    @property
    def policy(self) -> PrecisionPolicy:
        """The precision of every node; 'auto' is float32 until a policy was chosen (precision/auto_model.py).

        DeviceError if sums in half are requested and the device has no half arithmetic.
        """
        wanted, info = self.options.precision, self.rt.info
        wanted = "fp32" if wanted == "auto" else wanted
        policy = PrecisionPolicy.named(wanted) if isinstance(wanted, str) else wanted
        if policy.precision is Precision.FP16_FAST and not info.half_sums:
            raise DeviceError(
                f"precision fp16_fast needs half arithmetic, which {info.title} lacks; "
                f"use fp16 (half storage, float sums) or fp32"
            )
        return policy

    def compile(
        self,
        graph: Graph,
        trace: RunTrace,
        tuning: TuneRequest,
        *,
        sizes: Sizes = (),
        on_built: OnBuilt | None = None,
        policy: Policy = None,
        soon: bool = False,
        keeper: Keeper | None = None,
    ) -> Compiled:
        """Optimise, plan and build `graph`, which is not changed: an interrupted caller may try again.

        trace: gets the seconds. sizes: of the graph's symbols, for which the Executable is prepared. on_built: called
        with the program, or its template, and notes on it before its weights are released. policy: None for the
        session's. If a kernel's program does not compile, another kernel replaces it, if there is one. keeper: stores
        the plans, in place of `on_built`.

        soon: with generic programs, in float32, if fewer of them are missing than of the optimized ones; else the
        caller waits for these, and the generic ones are built in the background. `Compiled.job` then compiles the
        optimized ones, once it is submitted to `background`; it also makes their plan for large graphs with small
        weights. Planning reads the weights, and the generic executable of large ones should not be in memory then. If
        an earlier process used generic programs for the graph, missing optimized ones are built first (BUILT_FIRST).
        """
        on_built = on_built if keeper is None else keeper.keep
        recurs = keeper is not None and keeper.recurs
        plan = self._planner(graph, sizes, trace, tuning, policy)
        may_be_generic = soon and self.background is not None and not self.background.gives_up
        if not may_be_generic or not self._may_use_generic(policy) or self.tunes(tuning):
            return self._make(graph, plan, trace, sizes, on_built)
        missing_of = self.rt.programs.missing
        plan_generic = partial(plan_for_sizes, lambda g: self.plan_generic(g, trace, policy), graph, sizes)
        is_small = constant_bytes(graph) < MIN_RELEASED_BYTES
        plans_later = is_small and len(graph.nodes) >= MIN_NODES_PLANNED_LATER and not recurs
        planned = plan_or_none(plan, graph) if recurs else None
        generic = plan_or_none(plan_generic, graph) if plans_later else None
        if generic is None or len(missing_of(specs(generic.program))) * STEPS_A_PROGRAM > len(generic.program.steps):
            planned = planned or plan()
            if recurs:
                self.build_first(specs(planned.program))
            missing = missing_of(specs(planned.program))
            if not missing:
                compiled = self._make(graph, plan, trace, sizes, on_built, planned)
                if keeper is not None:
                    keeper.end_generic()
                return compiled
            generic = generic or plan_or_none(plan_generic, graph)
            lacking = [] if generic is None else missing_of(specs(generic.program))
            if generic is None or len(lacking) >= len(missing):
                generic = None  # and its weights, before the others are made
                compiled = self._make(graph, plan, trace, sizes, on_built, planned)
                if lacking:  # afterwards, because background builds take over the caller's worker processes
                    self.submit([])
                return compiled
        try:
            begin_generic = None if keeper is None else keeper.begin_generic
            compiled = self._make(graph, plan_generic, trace, sizes, begin_generic, generic)
            self.counters.add_fallbacks(generic.fallbacks)
        except BuildError as e:
            _log.info("graph '%s' has no generic programs: %s", graph.name, e)
            return self._make(graph, plan, trace, sizes, on_built, planned)
        if planned is not None:
            if recurs and keeper is not None:  # this process may end before its background work begins
                keeper.keep(planned.template or planned.program, planned.notes)
            planned.release_weights()
        compiled.job = CompileJob(partial(self._begin_in_background, graph, sizes, keeper, planned, policy))
        return compiled

    def build_first(self, wanted: Sequence[Spec]) -> bool:
        """Build some of the missing programs that earlier processes left unbuilt. Returns whether all are built."""
        programs = self.rt.programs
        missing = programs.missing(wanted)
        with suppress(BuildError):  # which is raised again where its kernel can be replaced
            programs.get_all(missing[: BUILT_FIRST * worker_count()], counts=self.counters.programs)
        return not programs.missing(missing)

    def _may_use_generic(self, policy: Policy = None) -> bool:
        """Whether first runs may use generic programs, which compute in float32."""
        return self.background is not None and (policy or self.policy).precision in (Precision.FP32, Precision.WIDE)

    def prestart_workers(self, is_pending: bool = False) -> None:
        """Start compilers if nothing is cached, or if programs are pending. To be called before a model is opened."""
        count = 1 if self._may_use_generic() and not is_pending else None
        self.rt.programs.prestart_workers(count, even_if_filled=is_pending)

    def prestart_for_generic(self) -> None:
        """Start a compiler if generic programs may be missing. To be called before a graph is imported."""
        if self._may_use_generic():
            self.rt.programs.prestart_for_generic()

    def submit(self, jobs: Sequence[CompileJob]) -> None:
        """Submit jobs, and one that builds the generic programs that no model needed yet: the next model may."""
        assert self.background is not None
        missing = self._missing_generic()
        generic = [SpareCompileJob(missing, self._missing_generic, lambda: self.counters.run_count)] if missing else []
        self.background.submit(*jobs, *generic)

    def _missing_generic(self) -> list[Spec]:
        """The generic programs that are not built. That all are built is recorded for later processes."""
        from ....plan.generic_programs import generic_programs

        missing = self.rt.programs.missing([s.parts for s in generic_programs(self.rt.info)])
        if not missing:
            self.rt.programs.report_generic()
        return missing

    def _begin_in_background(
        self, graph: Graph, sizes: Sizes, keeper: Keeper | None, planned: Planned | None, policy: Policy
    ) -> Task:
        """The missing programs of the optimized plan (`planned` if known), and a function that makes its Executable."""
        assert self.background is not None
        trace = RunTrace()
        plan = self._planner(graph, sizes, trace, AS_OPENED, policy)
        if planned is None:
            planned = plan()
            planned.release_weights()
        kept = planned.template or planned.program
        if (
            keeper is not None and not keeper.has_kept
        ):  # before it is built, so that a process that ends leaves the plan
            with background_planning():
                keeper.keep(kept, planned.notes)

        def keep_other(content: Program | Template, notes: tuple[str, ...]) -> None:
            if keeper is not None and content is not kept:  # a kernel did not compile
                keeper.keep(content, notes)

        def make(before_weights: Callable[[], None]) -> Compiled:
            assert self.background is not None
            counts = self.background.counts
            try:
                compiled = self._make(graph, plan, trace, sizes, keep_other, planned, counts, before_weights)
            except OpaliteError:
                if keeper is not None:
                    keeper.discard()
                raise
            if keeper is not None:
                keeper.end_generic()
            return compiled

        parts = megakernel_parts(self.rt, planned.program)
        return Task(self.rt.programs.missing(specs(planned.program)), make, parts)

    def prepare(
        self,
        graph: Graph,
        *,
        sizes: Sizes = (),
        on_built: OnBuilt | None = None,
        complete: Callable[[Planned], Planned] | None = None,
    ) -> tuple[Program, Task] | None:
        """Plan `graph`, which is consumed, for the sizes at hand: the program, and the task that makes its Executable.

        None if the plan serves no other sizes. complete: changes the plan before its Executable is made.
        """
        assert self.background is not None
        trace, counts = RunTrace(), self.background.counts

        def plan() -> Planned:
            planned = self.plan(graph.copy(), trace)
            return planned if complete is None else complete(planned)

        planned = plan()
        if planned.template is None:
            return None
        planned.release_weights()

        def make(before_weights: Callable[[], None]) -> Compiled:
            return self._make(graph, plan, trace, sizes, on_built, planned, counts)

        return planned.program, Task(self.rt.programs.missing(specs(planned.program)), make)

    def _planner(
        self, graph: Graph, sizes: Sizes, trace: RunTrace, tuning: TuneRequest, policy: Policy
    ) -> Callable[[], Planned]:
        """A function that plans `graph` with the program for `sizes`. Tuning serves those sizes alone."""
        plan = partial(self.plan, trace=trace, tuning=tuning, policy=policy)
        return partial(plan_for_sizes, plan, graph, sizes, alone=self.tunes(tuning))

    def _make(
        self,
        graph: Graph,
        plan: Callable[[], Planned],
        trace: RunTrace,
        sizes: Sizes,
        on_built: OnBuilt | None,
        planned: Planned | None = None,
        counts: ProgramCounts | None = None,
        before_weights: Callable[[], None] | None = None,
    ) -> Compiled:
        """The Executable of `planned`, or of the result of `plan` for `graph`."""
        failed: BuildError | None = None
        notes: tuple[str, ...] = ()
        for left in range(MOST_LEFT_OUT, -1, -1):
            try:
                planned = planned or plan()
            except OpaliteError:
                if failed is not None:  # no other kernel can replace it
                    raise failed from None
                raise
            program, template, all_notes = planned.program, planned.template, (*notes, *planned.notes)
            if failed is not None and not any(isinstance(s, LaunchStep) for s in program.steps):
                raise failed  # all other steps run on the host: the driver compiles nothing
            try:
                executable = Executable(
                    self.rt,
                    program,
                    onnx_runner(),
                    counts=counts or self.counters.programs,
                    tier=planned.tier,
                    on_built=stage_weights(self.rt, planned, all_notes, before_weights, on_built),
                )
                break
            except BuildError as e:
                note = exclude_failed(self.rt, program, e) if left else ""
                if not note:
                    raise
                notes = (*notes, note)
                failed, planned = e, None
        trace.build_s += executable.build_s
        self.rt.programs.is_serving |= executable.tier == "optimized"
        if template is not None:
            template.program.weights = {}  # the device holds them now
        return Compiled(executable, all_notes, may_overflow=program.stores_halves, sizes=sizes, template=template)

    def plan_options(self, policy: Policy = None, level: str = "none", tier: Tier = "optimized") -> PlanOptions:
        """The planner's options. policy: None for the session's. level: of tuning."""
        from ....plan.planner import PlanOptions

        return PlanOptions(
            policy or self.policy,
            self.options.memory,
            self.options.strict,
            tries_images=LEVELS.index(level) >= LEVELS.index("wide"),
            tier=tier,
            late_weights=True,
        )

    def plan_generic(self, graph: Graph, trace: RunTrace, policy: Policy = None) -> Planned:
        """The generic plan of `graph`, which is consumed."""
        started = time.perf_counter()
        with background_planning():
            planned = plan_generic(graph, self.plan_options(policy, tier="generic"), self.rt.info)
        trace.import_s += time.perf_counter() - started
        self.counters.add_plan(made=1)
        return planned

    def plan(
        self,
        graph: Graph,
        trace: RunTrace,
        tuning: TuneRequest = AS_OPENED,
        policy: Policy = None,
        keeps_graph: bool = False,
    ) -> Planned:
        """The plan of `graph`, which is consumed, after tuning if requested. keeps_graph: see PlanOptions."""
        from ....plan.planner import Knowledge, lay_out, prepare  # passes, kernels: a compiled model needs neither
        from ....tune.database_files import has_tuning, tuning_stamp
        from ....tune.plan_dependencies import graph_key, record

        self.counters.add_plan(made=1)
        started = time.perf_counter()
        level = tuning.level or self.options.tune
        options = replace(self.plan_options(policy, level), keeps_graph=keeps_graph)
        stamp = tuning_stamp()
        with background_planning():
            if options.memory != "low":  # which replaces them
                compute_largest(graph, options.policy)
            prepared = prepare(graph, options, self.rt.info)
            key = graph_key(prepared.graph.nodes, options.memory)
        if level == "none" and not has_tuning(self.rt.info):
            with background_planning():
                planned = lay_out(prepared, options, Knowledge(self.rt.info))
            planned.set_tuning(record(self.rt.info, key, prepared.graph.nodes, stamp))
            trace.import_s += time.perf_counter() - started
            return planned
        from ....tune.tuned_planning import TunedPlanner

        trace.import_s += time.perf_counter() - started
        started = time.perf_counter()
        planner = TunedPlanner(self.rt, options, onnx_runner(), tuning.on_trial, tuning.on_report)
        if level != "none" and (tuning.resumes or not planner.is_tuned(prepared, level)):
            planned = planner.plan_with_search(prepared, level)
            trace.tune_s += time.perf_counter() - started
        else:
            planned = planner.plan_from_database(prepared)
            planned.set_tuning(record(self.rt.info, key, prepared.graph.nodes, stamp))
            trace.import_s += time.perf_counter() - started
        return planned
