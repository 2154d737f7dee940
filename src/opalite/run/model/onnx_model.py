"""OnnxModel: a session's .onnx model, which runs by a stored plan, else is imported, and its plan stored."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...cl.programs.background_throttle import background_planning
from ...errors import BundleError
from ...ir.device.device_info import DeviceInfo
from ...ir.model_edits import ModelEdits
from ...plan.bundle.bundle import Variant
from ...plan.program import Program
from ...plan.template.program_template import Template
from ..execute.run_trace import RunTrace
from .background.background_compile import CompileJob, Task
from .background.graph_compiler import Compiler
from .background.plan_graph import specs
from .background.respecialize import Respecializer
from .background.respecialize_policy import Sizes
from .bundle_model import BundleModel
from .executable_cache import Compiled, ExecutableCache
from .model_inputs_outputs import NodeArg, example_shapes
from .plans.plan_files import fits, types_alone
from .plans.plan_store import PlanStore
from .plans.stored_plan import StoredPlan
from .run_request import PLAIN, RunRequest

if TYPE_CHECKING:
    from ...plan.planner import Planned
    from .imported_model import ImportedModel
    from .run_lock import RunLock
    from .segment_runs import SegmentRuns


class OnnxModel:
    """An .onnx model of a session. store: its plans, None if they cannot be used.

    It imports the model (with onnx) if no plan serves the inputs, or if they must be converted. From then on it works
    as a session without plans.
    """

    def __init__(
        self, model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None
    ) -> None:
        """A model as `edits` change it, compiled by `compiler`."""
        self._source, self._edits = model, edits
        self.compiler = compiler
        self.store = PlanStore.open(model, compiler, edits)
        self._opening = threading.RLock()
        self._runs: SegmentRuns | None = None
        if self.store is not None and self.store.has_pending:
            compiler.prestart_workers(is_pending=True)
        about = (None if self.store is None else self.store.newest()) or self.imported().imported
        self.inputs, self.outputs, self.overridable = about.inputs, about.outputs, about.overridable
        self.opset, self.meta = about.opset, about.meta

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The declared shapes, with a guess for open dimensions."""
        return example_shapes(self.inputs)

    @property
    def is_imported(self) -> bool:
        """Whether the file was parsed."""
        return self._runs is not None

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers: no plan of such a model is stored."""
        return self._runs is not None and self._runs.imported.draws

    @property
    def repeats(self) -> bool:
        """Whether the file's bytes and the input types decide everything."""
        return self._runs is None or self._runs.imported.repeats

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled programs."""
        stored = [] if self.store is None else self.store.caches
        return stored if self._runs is None else [*stored, self._runs.executables]

    def reset(self) -> None:
        """Evict compiled programs."""
        if self.store is not None:
            self.store.reset()
        if self._runs is not None:
            self._runs.reset()

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays. InputError if they do not fit."""
        if self._runs is None and fits(feeds) and self._match(feeds):
            return dict(feeds)
        return self.imported().imported.check_feeds(feeds)

    def _match(self, feeds: Mapping[str, Any]) -> bool:
        """Whether the feeds have the declared names, dtypes and shapes, so that nothing is converted."""
        known = {a.name: a for a in self.inputs}
        return feeds.keys() == known.keys() and all(
            (info := known[name]).dtype is not None and array.dtype == info.dtype.np and _has_shape(info, array.shape)
            for name, array in feeds.items()
        )

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and the trace."""
        started = time.perf_counter()
        store = None if self.compiler.tunes(request.tuning) or request.observer else self.store
        found = None if store is None else store.find(feeds, self.is_imported, request.waits)
        before: RunTrace | None = None
        if store is not None and found is not None:
            plan, sizes = found
            looked_s = time.perf_counter() - started
            plan.on_distant = None if self.compiler.background is None else self._respecialize
            outputs, trace = plan.run_variant(plan.variant, sizes, feeds, request)
            trace.import_s += looked_s
            if plan.replacement is not None:
                self._replace_generic(plan, sizes, *plan.replacement)
            if not trace.overflowed:
                return outputs, trace
            # Half storage may have overflowed: only the imported graph can be planned in float32.
            before = trace
            store.forget_found(feeds)
            started = time.perf_counter()
        runs = self.imported()
        imported_s = time.perf_counter() - started
        outputs, trace = runs.run(feeds, request)
        trace.import_s += imported_s
        if before is not None:
            trace.add(before)
        if trace.overflowed and self.store is not None:
            self.store.delete(feeds)  # plans that store halves, which overflow
        return outputs, trace

    def _replace_generic(self, plan: StoredPlan, sizes: Sizes, better: StoredPlan, at: Sizes) -> None:
        """Submit the job that replaces the generic executable of `plan` by that of `better` at the sizes `at`."""
        found, store = plan.executables.find(plan.variant, sizes), self.store
        plan.replacement = None
        if found is None or store is None:
            return
        compiled = found[0]

        def make() -> Compiled:
            made = better.compiled(better.variant, at, RunTrace())
            store.end_pending(Path(better.path))
            return made

        missing = partial(self.compiler.rt.programs.missing, specs(better.variant.stored))
        compiled.job = CompileJob(lambda: Task(missing(), lambda before_weights: make()))
        compiled.job.set_target(plan.executables, plan.variant, compiled)
        self.compiler.submit([compiled.job])

    def imported(self) -> SegmentRuns:
        """The imported model, without stored plans."""
        if self._runs is not None:
            return self._runs
        with self._opening, background_planning():
            if self._runs is None:
                self.compiler.prestart_for_generic()  # before these modules are read, which takes a while
                from .segment_runs import SegmentRuns

                imported = self._import()
                why = "" if self.store is None else self.store.resolve_data_files(imported)
                self._runs = SegmentRuns(imported, self.compiler, None if why else self.store, why)
            return self._runs

    def _import(self) -> ImportedModel:
        from .imported_model import ImportedModel  # imports onnx

        return ImportedModel(self._source, self._edits, None if self.store is None else self.store.file)

    def _respecialize(
        self,
        plan: BundleModel,
        variant: Variant,
        compiled: Compiled,
        sizes: Sizes,
        feeds: Mapping[str, Any],
        lock: RunLock,
    ) -> None:
        """Submit a job that plans for `sizes`, those of `feeds`, which recur far from the sizes of `plan`."""
        background, store, types = self.compiler.background, self.store, types_alone(feeds)
        if background is None or store is None or store.failed_before(types):
            return

        def prepare() -> tuple[Program, Task] | None:
            imported = self._import() if self._runs is None else self._runs.imported
            if self._runs is None and store.resolve_data_files(imported):
                return None
            segment = imported.fresh().only_segment(types)
            shapes = {name: array.shape for name, array in types.items()}

            def complete(planned: Planned) -> Planned:
                whole = imported.complete(planned.template or planned.program, segment)
                found = imported.needs(whole, segment, shapes).sizes
                if not isinstance(whole, Template) or found != variant.needs.sizes:
                    raise BundleError("its sizes differ from those of the first plan")
                program = whole.at(sizes)
                assert program is not None, "planned for them"
                return replace(planned, program=program, template=whole)

            def on_built(whole: Program | Template, notes: tuple[str, ...]) -> None:
                store.store_whole(imported, types, segment, whole, whole, notes)

            return self.compiler.prepare(segment.graph, sizes=sizes, on_built=on_built, complete=complete)

        job = Respecializer(prepare, lock, partial(store.record_failed_attempt, types))
        job.set_base_plan(plan.executables, variant, compiled, sizes)
        background.submit(job)


def _has_shape(info: NodeArg, shape: tuple[int, ...]) -> bool:
    """Whether an array of `shape` may be fed as it is; one of one element is accepted as a scalar."""
    if info.any_rank or (not info.shape and math.prod(shape) == 1):
        return True
    return len(shape) == len(info.shape) and all(
        w == g for w, g in zip(info.shape, shape, strict=True) if isinstance(w, int)
    )
