"""CachedModel: an .onnx model that runs by a plan of the cache folder, else is imported, and its plan stored."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cl.programs.background_throttle import background_planning
from ...errors import BundleError
from ...ir.device.device_info import DeviceInfo
from ...ir.growable_tensor import GrowableTensor
from ...ir.model_edits import ModelEdits
from ...plan.bundle.bundle import Bundle, Variant
from ...plan.kv_cache_spec import KVCacheSpec
from ...plan.program import Program
from ...plan.template.program_template import Template
from ...tune.database_files import tuning_stamp
from ..execute.run_trace import RunTrace
from .background.graph_compiler import Compiler, PendingExecutable, specs
from .background.respecialize import Respecializer
from .background.respecialize_policy import FAR, Sizes
from .bundle_description import describe_model
from .bundle_model import BundleModel
from .example_shapes import example_shapes
from .executable_cache import Compiled, ExecutableCache
from .fp16_overflow_fallback import is_finite
from .kv_cache.kv_cache_plans import KVCachePlan, KVCachePlans
from .plans.plan_cache import KEPT, PlanCache, fits, is_current
from .run_request import PLAIN, RunRequest

if TYPE_CHECKING:
    from ...importer.walk.segments import Segment
    from ...plan.planner import Planned
    from .imported_model import ImportedModel
    from .onnx_model import OnnxModel
    from .run_lock import RunLock

_TYPES_KEPT = 256
"""Number of input types whose plan is cached."""


class CachedModel:
    """An .onnx model of a session.

    It imports the model (with onnx) if no plan serves the inputs, or if they must be converted. From then on it works
    as a session without plans. It stores the first plan that it makes, and up to KEPT plans if sizes are open, since
    one plan serves all sizes for which its guards hold.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        compiler: Compiler,
        plans: PlanCache,
        edits: ModelEdits | None = None,
    ) -> None:
        self._model = model
        self.compiler = compiler
        self._edits = edits
        self._plans = plans
        self._opening = threading.RLock()  # for opening a plan or the model file
        self._lock = threading.Lock()  # for `_opened` and `_plans_left`
        self._onnx: OnnxModel | None = None
        self._opened: OrderedDict[Any, BundleModel] = OrderedDict()  # open plans by input types
        self._plans_left = KEPT  # that this session may store
        self._is_storable = True  # plans of the imported model may be stored
        self._kv_plans = KVCachePlans(plans, compiler)
        about = self._kv_plans.newest() or plans.newest() or self._imported()
        self.inputs = about.inputs
        self.outputs = about.outputs
        self.overridable = about.overridable
        self.opset = about.opset
        self.meta = about.meta

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The declared shapes, with a guess for open dimensions."""
        return example_shapes(self.inputs)

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers: no plan of such a model is stored."""
        return self._onnx is not None and self._onnx.draws

    @property
    def repeats(self) -> bool:
        """Whether the file's bytes and the input types decide everything."""
        return self._onnx is None or self._onnx.repeats

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled programs."""
        with self._lock:
            found = [plan.executables for plan in dict.fromkeys(self._opened.values())]
        found += self._kv_plans.caches
        return found if self._onnx is None else [*found, self._onnx.executables]

    def reset(self) -> None:
        """Evict compiled programs."""
        with self._lock:
            self._opened.clear()
        self._kv_plans.reset()
        if self._onnx is not None:
            self._onnx.reset()

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays. InputError if they do not fit."""
        if self._onnx is None and fits(feeds) and self._match(feeds):
            return dict(feeds)
        return self._imported().check_feeds(feeds)

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and the trace."""
        started = time.perf_counter()
        tunes = (request.tuning.level or self.compiler.options.tune) != "none"
        plan = None if tunes else self._find(feeds)
        before: RunTrace | None = None
        if plan is not None:
            looked_s = time.perf_counter() - started
            outputs, trace = plan.run(feeds, request)
            trace.import_s += looked_s
            if not any(e.program.stores_halves for e in trace.executables):
                return outputs, trace
            if is_finite(outputs):
                assert trace.run_record is not None
                trace.run_record.route = None  # the outputs of each run are checked
                return outputs, trace
            # Half storage may have overflowed: only the imported graph can be planned in float32.
            before = trace
            with self._lock:
                self._opened.pop(_types_of(feeds), None)
            started = time.perf_counter()
        model = self._imported()
        imported_s = time.perf_counter() - started
        may_store = self._plans_left and self._is_storable and fits(feeds) and not tunes
        outputs, trace = model.run(feeds, request, _PlanStorer(self, feeds) if may_store else None)
        trace.import_s += imported_s
        if before is not None:
            trace.add(before)
        if trace.overflowed and fits(feeds):
            self._plans.delete_all(feeds)  # it stores halves, which overflow
        return outputs, trace

    # Runs on KV caches (kv_cache/kv_cache_runs.py)

    def find_kv_plan(self, feeds: Mapping[str, Any]) -> tuple[KVCachePlan, tuple[int, ...]] | None:
        """(plan, sizes) of runs on such `feeds`: arrays and growable caches; None if there is none."""
        if self.compiler.options.tune != "none" or not _fit(feeds):
            return None
        return self._kv_plans.find(feeds, self._onnx is None)

    def store_kv_plan(
        self,
        record: KVCacheSpec,
        template: Template,
        program: Template,
        notes: tuple[str, ...],
        feeds: Mapping[str, Any],
    ) -> None:
        """Store the plan of runs on such `feeds`, if that is possible (KVCachePlans.store)."""
        if self._onnx is not None and self._is_storable and _fit(feeds):
            self._kv_plans.store(self._onnx.imported, record, template, program, notes, feeds)

    def discard_kv_plan(self, plan: KVCachePlan) -> None:
        """Delete `plan`, whose half storage overflowed."""
        self._kv_plans.discard(plan)

    def delete_kv_plan(self, feeds: Mapping[str, Any]) -> None:
        """Delete the plan for such `feeds`, whose half storage overflowed."""
        self._kv_plans.delete(feeds)

    def imported(self) -> OnnxModel:
        """The imported model, without stored plans."""
        return self._imported()

    def _imported(self) -> OnnxModel:
        found = self._onnx
        if found is not None:
            return found
        with self._opening, background_planning():
            if self._onnx is None:
                self.compiler.prestart_for_generic()  # before these modules are read, which takes a while
                from .imported_model import ImportedModel
                from .onnx_model import OnnxModel

                imported = ImportedModel(self._model, self._edits, self._plans.file)
                self._is_storable = self._plans.resolve_data_files(imported)
                self._onnx = OnnxModel(imported, self.compiler)
            return self._onnx

    def _match(self, feeds: Mapping[str, Any]) -> bool:
        """Whether the feeds have exactly the declared names, dtypes and shapes."""
        known = {a.name: a for a in self.inputs}
        return feeds.keys() == known.keys() and all(
            (info := known[name]).dtype is not None
            and array.dtype == info.dtype.np
            and array.ndim == len(info.shape)
            and all(w == g for w, g in zip(info.shape, array.shape, strict=True) if isinstance(w, int))
            for name, array in feeds.items()
        )

    def _find(self, feeds: Mapping[str, Any]) -> BundleModel | None:
        """The plan for `feeds`: an open one, or before the import one of the cache folder."""
        if not fits(feeds):
            return None
        key = _types_of(feeds)
        plan = self._find_open(key)
        if plan is not None or self._onnx is not None:
            return plan
        with self._opening:
            plan = self._find_open(key)
            if plan is not None or self._onnx is not None:
                return plan
            with background_planning():
                plan = self._find_stored(feeds)
            if plan is None:
                return None
            plan.on_distant = None if self.compiler.background is None else self._respecialize
            with self._lock:
                self._opened[key] = plan
                if len(self._opened) > _TYPES_KEPT:
                    self._opened.popitem(last=False)
        return plan

    def _find_stored(self, feeds: Mapping[str, Any]) -> BundleModel | None:
        """An open plan for other sizes that serves these too, or one of the cache folder."""
        info, shapes = self.compiler.rt.info, {name: array.shape for name, array in feeds.items()}
        with self._lock:
            opened = list(dict.fromkeys(reversed(self._opened.values())))
        found = min((p for p in opened if p.serves(info, shapes)), key=lambda p: p.distance(shapes), default=None)
        if found is not None and (found.distance(shapes) < FAR or self._plans.size == 1):
            return found if found.knows_tuning(info, shapes, tuning_stamp()) else None
        kept = self._find_unopened(feeds, opened, found)
        if kept is not None or found is None:
            return kept
        return found if found.knows_tuning(info, shapes, tuning_stamp()) else None

    def _find_unopened(
        self, feeds: Mapping[str, Any], opened: Sequence[BundleModel], known: BundleModel | None
    ) -> BundleModel | None:
        """A stored plan that can run at once. known: an open plan; the found one was made for nearer sizes."""
        info, shapes = self.compiler.rt.info, {name: array.shape for name, array in feeds.items()}
        kept = self._plans.find(feeds, opened, None if known is None else known.distance(shapes))
        if kept is None:
            return None
        try:
            program = kept.read(info, shapes)
        except BundleError as e:
            self._plans.drop(kept, e)
            return None
        if not is_current(program, info) or not kept.knows_tuning(info, shapes, tuning_stamp()):
            return None  # tuning has chosen other settings since
        if self.compiler.background is not None and self.compiler.rt.programs.missing(specs(program)):
            return None  # importing the model for generic programs is faster
        return kept

    def _find_open(self, key: Any) -> BundleModel | None:
        with self._lock:
            plan = self._opened.get(key)
            if plan is not None:
                self._opened.move_to_end(key)
        return plan

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
        background = self.compiler.background
        types = _types_alone(feeds)
        if background is None or self._plans.failed_before(types):
            return
        storer = _PlanStorer(self, feeds)

        def prepare() -> PendingExecutable | None:
            from .imported_model import ImportedModel  # imports onnx

            opened = None if self._onnx is None else self._onnx.imported
            imported = opened or ImportedModel(self._model, self._edits, self._plans.file)
            if opened is None and not self._plans.resolve_data_files(imported):
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

            def on_built(program: Program | Template, notes: tuple[str, ...]) -> None:
                storer.store_whole(imported, program, segment, notes)

            return self.compiler.prepare(segment.graph, sizes=sizes, on_built=on_built, complete=complete)

        job = Respecializer(prepare, lock, storer.forget)
        job.set_base_plan(plan.executables, variant, compiled, sizes)
        background.submit(job)

    def take_plan_slot(self, is_template: bool) -> bool:
        """Count a plan to store; False if this session has stored enough."""
        with self._lock:
            if not self._plans_left:
                return False
            self._plans_left = self._plans_left - 1 if is_template else 0
            return True


class _PlanStorer:
    """Stores the plan that a run makes. Called with a program, its segment and notes."""

    def __init__(self, model: CachedModel, feeds: Mapping[str, Any]) -> None:
        """feeds: of the run; only their types are kept."""
        self._model = model
        self._given = [(name, array.dtype, array.shape) for name, array in feeds.items()]

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {name: np.broadcast_to(np.zeros((), dtype), shape) for name, dtype, shape in self._given}

    def __call__(self, program: Program | Template, segment: Segment, notes: tuple[str, ...]) -> None:
        """Store the plan of a segment that is the whole model."""
        assert self._model._onnx is not None
        if not self._model.take_plan_slot(isinstance(program, Template)):
            return
        imported = self._model._onnx.imported
        try:
            whole = imported.complete(program, segment)
        except BundleError:
            return  # for example, an output is an input
        kept = self.store_whole(imported, whole, segment, notes)
        if kept is not None:
            own = program.program if isinstance(program, Template) else program
            keys = kept.stored.weight_keys
            own.weight_keys.update((n, keys[n]) for n in own.weights.keys() & keys)  # its programs use them too

    def store_whole(
        self, imported: ImportedModel, whole: Program | Template, segment: Segment, notes: tuple[str, ...]
    ) -> Variant | None:
        """Store a program whose ports are the model's own; None if it cannot be stored."""
        shapes = {name: array.shape for name, array in self._types.items()}
        try:
            about = {**describe_model(self._model), "notes": list(notes)}
            needs = imported.needs(whole, segment, shapes)
            variant = Variant(self._model.compiler.rt.info, whole, needs=needs)
            self._model._plans.store(self._types, Bundle([variant], about))
        except BundleError:
            return None
        return variant

    def forget(self) -> None:
        """Record that a plan for these types is not worth trying again."""
        self._model._plans.record_failed_attempt(self._types)


def _types_of(feeds: Mapping[str, Any]) -> Any:
    return frozenset((name, array.dtype.str, array.shape) for name, array in feeds.items())


def _types_alone(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of zeros of the same types, which take no memory."""
    return {n: np.broadcast_to(np.zeros((), a.dtype), a.shape) for n, a in feeds.items()}


def _fit(feeds: Mapping[str, Any]) -> bool:
    """Whether a plan for such feeds, apart from caches among them, can be stored."""
    return fits({n: v for n, v in feeds.items() if not isinstance(v, GrowableTensor)})
