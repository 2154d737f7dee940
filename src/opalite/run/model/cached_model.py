"""CachedModel: an .onnx model by its plan from the cache where there is one; else imported, and its plan kept."""

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
"""Types of inputs for which the plan is remembered."""


class CachedModel:
    """An .onnx model behind a session.

    onnx is imported and the file parsed when that is needed: no plan is kept, or one for other shapes, or the feeds
    want a closer look. From then on the session works as one without plans. It keeps the first plan that it makes, and
    more where sizes are open, for one plan serves all sizes for which its guards hold.
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
        self._opening = threading.RLock()  # one thread opens a plan or the file
        self._lock = threading.Lock()  # of what is open
        self._onnx: OnnxModel | None = None
        self._opened: OrderedDict[Any, BundleModel] = OrderedDict()  # plans by the types of their inputs
        self._keeps = KEPT  # plans, of this session
        self._follows = True  # plans of what was imported may be kept
        self._states = KVCachePlans(plans, compiler)
        about = self._states.newest() or plans.newest() or self._imported()
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
        """Whether it may draw random numbers: no plan is kept of models that do."""
        return self._onnx is not None and self._onnx.draws

    @property
    def repeats(self) -> bool:
        """Whether the bytes of the file and the inputs' types decide everything."""
        return self._onnx is None or self._onnx.repeats

    @property
    def caches(self) -> list[ExecutableCache]:
        """What holds what was compiled."""
        with self._lock:
            found = [plan.executables for plan in dict.fromkeys(self._opened.values())]
        found += self._states.caches
        return found if self._onnx is None else [*found, self._onnx.executables]

    def reset(self) -> None:
        """Forget what was compiled."""
        with self._lock:
            self._opened.clear()
        self._states.reset()
        if self._onnx is not None:
            self._onnx.reset()

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays; InputError says what does not fit."""
        if self._onnx is None and fits(feeds) and self._match(feeds):
            return dict(feeds)
        return self._imported().check_feeds(feeds)

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, and what the run did."""
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
                trace.run_record.route = None  # the outputs of each run must be looked at
                return outputs, trace
            # Half may have overflowed: only the graph can be planned anew in float32.
            before = trace
            with self._lock:
                self._opened.pop(_types_of(feeds), None)
            started = time.perf_counter()
        model = self._imported()
        imported_s = time.perf_counter() - started
        may_keep = self._keeps and self._follows and fits(feeds) and not tunes
        outputs, trace = model.run(feeds, request, _Keeper(self, feeds) if may_keep else None)
        trace.import_s += imported_s
        if before is not None:
            trace.add(before)
        if trace.overflowed and fits(feeds):
            self._plans.forget(feeds)  # it was made before half was seen to overflow
        return outputs, trace

    # Runs on caches (appending.py)

    def find_state(self, feeds: Mapping[str, Any]) -> tuple[KVCachePlan, tuple[int, ...]] | None:
        """The plan for runs on such `feeds`, arrays and caches in reserved memory, and their sizes."""
        if self.compiler.options.tune != "none" or not _fit(feeds):
            return None
        return self._states.find(feeds, self._onnx is None)

    def keep_state(
        self,
        record: KVCacheSpec,
        template: Template,
        program: Template,
        notes: tuple[str, ...],
        feeds: Mapping[str, Any],
    ) -> None:
        """Keep the plan of runs on such `feeds`, if it may be kept (StatePlans.keep)."""
        if self._onnx is not None and self._follows and _fit(feeds):
            self._states.store(self._onnx.imported, record, template, program, notes, feeds)

    def refuse_state(self, plan: KVCachePlan) -> None:
        """What halves did not hold was computed by `plan`."""
        self._states.discard(plan)

    def forget_states(self, feeds: Mapping[str, Any]) -> None:
        """A plan for such `feeds` was made before half was seen to overflow."""
        self._states.delete(feeds)

    def imported(self) -> OnnxModel:
        """The model without plans from the cache."""
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
                self._follows = self._plans.follow(imported)
                self._onnx = OnnxModel(imported, self.compiler)
            return self._onnx

    def _match(self, feeds: Mapping[str, Any]) -> bool:
        """Whether the feeds are exactly what the inputs declare."""
        known = {a.name: a for a in self.inputs}
        return feeds.keys() == known.keys() and all(
            (info := known[name]).dtype is not None
            and array.dtype == info.dtype.np
            and array.ndim == len(info.shape)
            and all(w == g for w, g in zip(info.shape, array.shape, strict=True) if isinstance(w, int))
            for name, array in feeds.items()
        )

    def _find(self, feeds: Mapping[str, Any]) -> BundleModel | None:
        """The plan for `feeds`, readable: one that is open, or one from the cache before the model was imported."""
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
                plan = self._find_kept(feeds)
            if plan is None:
                return None
            plan.on_far = None if self.compiler.background is None else self._respecialize
            with self._lock:
                self._opened[key] = plan
                if len(self._opened) > _TYPES_KEPT:
                    self._opened.popitem(last=False)
        return plan

    def _find_kept(self, feeds: Mapping[str, Any]) -> BundleModel | None:
        """A plan that is open and serves other sizes too, or one from the cache."""
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
        """A plan from the cache that can be run at once. known: one that is open; the plan is made for nearer sizes."""
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
            return None  # tuning has found other settings since
        if self.compiler.background is not None and self.compiler.rt.programs.missing(specs(program)):
            return None  # general programs, which the graph is planned for, are there sooner
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
        """Have a plan made behind for `sizes`, those of `feeds`, which come back and which `plan` was not made for."""
        background = self.compiler.background
        types = _types_alone(feeds)
        if background is None or self._plans.failed_before(types):
            return
        keeper = _Keeper(self, feeds)

        def prepare() -> PendingExecutable | None:
            from .imported_model import ImportedModel  # and with it onnx, which a process with a plan does without

            opened = None if self._onnx is None else self._onnx.imported
            imported = opened or ImportedModel(self._model, self._edits, self._plans.file)
            if opened is None and not self._plans.follow(imported):
                return None
            segment = imported.fresh().only_segment(types)
            shapes = {name: array.shape for name, array in types.items()}

            def complete(planned: Planned) -> Planned:
                whole = imported.complete(planned.template or planned.program, segment)
                found = imported.needs(whole, segment, shapes).sizes
                if not isinstance(whole, Template) or found != variant.needs.sizes:
                    raise BundleError("the sizes are other ones than the plan's")
                program = whole.at(sizes)
                assert program is not None, "planned for them"
                return replace(planned, program=program, template=whole)

            def tell(program: Program | Template, notes: tuple[str, ...]) -> None:
                keeper.keep_whole(imported, program, segment, notes)

            return self.compiler.prepare(segment.graph, sizes=sizes, on_built=tell, complete=complete)

        job = Respecializer(prepare, lock, keeper.forget)
        job.set_base_plan(plan.executables, variant, compiled, sizes)
        background.submit(job)

    def may_keep(self, is_template: bool) -> bool:
        """Whether another plan is to be kept; asked once for each."""
        with self._lock:
            if not self._keeps:
                return False  # another thread's was the first
            self._keeps = self._keeps - 1 if is_template else 0
            return True


class _Keeper:
    """Keeps the plan that a run makes in the cache."""

    def __init__(self, model: CachedModel, feeds: Mapping[str, Any]) -> None:
        """feeds: of the run; their contents are not held."""
        self._model = model
        self._given = [(name, array.dtype, array.shape) for name, array in feeds.items()]

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {name: np.broadcast_to(np.zeros((), dtype), shape) for name, dtype, shape in self._given}

    def __call__(self, program: Program | Template, segment: Segment, notes: tuple[str, ...]) -> None:
        """Keep what was planned of a segment that is the whole model."""
        assert self._model._onnx is not None
        if not self._model.may_keep(isinstance(program, Template)):
            return
        imported = self._model._onnx.imported
        try:
            whole = imported.complete(program, segment)
        except BundleError:
            return  # such as an output that is an input: nothing to gain
        kept = self.keep_whole(imported, whole, segment, notes)
        if kept is not None:
            own = program.program if isinstance(program, Template) else program
            keys = kept.stored.weight_keys
            own.weight_keys.update((n, keys[n]) for n in own.weights.keys() & keys)  # its programs have them, too

    def keep_whole(
        self, imported: ImportedModel, whole: Program | Template, segment: Segment, notes: tuple[str, ...]
    ) -> Variant | None:
        """Keep a program whose ports are the model's own; None if that cannot be."""
        shapes = {name: array.shape for name, array in self._types.items()}
        try:
            about = {**describe_model(self._model), "notes": list(notes)}
            needs = imported.needs(whole, segment, shapes)
            variant = Variant(self._model.compiler.rt.info, whole, needs=needs)
            self._model._plans.keep(self._types, Bundle([variant], about))
        except BundleError:
            return None
        return variant

    def forget(self) -> None:
        """The plan is not worth having, nor trying again."""
        self._model._plans.record_failed_attempt(self._types)


def _types_of(feeds: Mapping[str, Any]) -> Any:
    return frozenset((name, array.dtype.str, array.shape) for name, array in feeds.items())


def _types_alone(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of the same types without contents: zeros, for which there is next to no memory."""
    return {n: np.broadcast_to(np.zeros((), a.dtype), a.shape) for n, a in feeds.items()}


def _fit(feeds: Mapping[str, Any]) -> bool:
    """Whether a plan may be kept for such feeds, whatever caches there are among them."""
    return fits({n: v for n, v in feeds.items() if not isinstance(v, GrowableTensor)})
