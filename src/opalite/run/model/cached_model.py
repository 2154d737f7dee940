"""CachedModel: an .onnx model by its plan from the cache where there is one; else imported, and its plan kept."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...cl.beside_runs import planning
from ...errors import BundleError
from ...ir.device import DeviceInfo
from ...ir.edits import ModelEdits
from ...plan.bundle import Bundle, Variant
from ...plan.program import Program
from ...plan.template import Template
from ...tune.files import tuning_stamp
from ..execute.trace import RunTrace
from .bundle_model import BundleModel
from .compiler import Compiler, specs
from .description import describe_model
from .example_shapes import example_shapes
from .executables import ExecutableCache
from .overflow import is_finite
from .plan_cache import KEPT, PlanCache, fits, is_current
from .request import PLAIN, RunRequest

if TYPE_CHECKING:
    from ...importer.walk.segments import Segment
    from .onnx_model import OnnxModel

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
        about = plans.newest() or self._imported()
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
            found = [plan.executables for plan in self._opened.values()]
        return found if self._onnx is None else [*found, self._onnx.executables]

    def reset(self) -> None:
        """Forget what was compiled."""
        with self._lock:
            self._opened.clear()
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
                assert trace.ran is not None
                trace.ran.steady = None  # the outputs of each run must be looked at
                return outputs, trace
            # Half may have overflowed: only the graph can be planned anew in float32.
            before = trace
            with self._lock:
                self._opened.pop(_types_of(feeds), None)
            started = time.perf_counter()
        model = self._imported()
        imported_s = time.perf_counter() - started
        may_keep = self._keeps and model.repeats and fits(feeds) and not tunes
        outputs, trace = model.run(feeds, request, partial(self._keep, feeds) if may_keep else None)
        trace.import_s += imported_s
        if before is not None:
            trace.add(before)
        if trace.overflowed and fits(feeds):
            self._plans.forget(feeds)  # it was made before half was seen to overflow
        return outputs, trace

    def _imported(self) -> OnnxModel:
        found = self._onnx
        if found is not None:
            return found
        with self._opening, planning():
            if self._onnx is None:
                self.compiler.expect_general()  # before these modules are read, which takes a while
                from .imported import ImportedModel
                from .onnx_model import OnnxModel

                self._onnx = OnnxModel(ImportedModel(self._model, self._edits, self._plans.file), self.compiler)
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
            with planning():
                plan = self._find_kept(feeds)
            if plan is None:
                return None
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
        for plan in (p for p in opened if p.serves(info, shapes)):
            return plan if plan.knows_tuning(info, shapes, tuning_stamp()) else None
        kept = self._plans.find(feeds, opened)
        if kept is None:
            return None
        try:
            program = kept.read(info, shapes)
        except BundleError as e:
            self._plans.drop(kept, e)
            return None
        if not is_current(program, info) or not kept.knows_tuning(info, shapes, tuning_stamp()):
            return None  # tuning has found other settings since
        if self.compiler.behind is not None and self.compiler.rt.programs.missing(specs(program)):
            return None  # general programs, which the graph is planned for, are there sooner
        return kept

    def _find_open(self, key: Any) -> BundleModel | None:
        with self._lock:
            plan = self._opened.get(key)
            if plan is not None:
                self._opened.move_to_end(key)
        return plan

    def _keep(
        self, feeds: Mapping[str, Any], program: Program | Template, segment: Segment, notes: tuple[str, ...]
    ) -> None:
        with self._lock:
            if not self._keeps:
                return  # another thread's was the first
            self._keeps = self._keeps - 1 if isinstance(program, Template) else 0
        assert self._onnx is not None
        shapes = {name: array.shape for name, array in feeds.items()}
        try:
            whole = self._onnx.imported.complete(program, segment)
            about = {**describe_model(self._onnx), "notes": list(notes)}
            variant = Variant(self.compiler.rt.info, whole, needs=self._onnx.imported.needs(whole, segment, shapes))
            self._plans.keep(feeds, Bundle([variant], about))
        except BundleError:
            return  # such as an output that is an input: nothing to gain
        own = program.program if isinstance(program, Template) else program
        own.weight_keys = variant.stored.weight_keys


def _types_of(feeds: Mapping[str, Any]) -> Any:
    return frozenset((name, array.dtype.str, array.shape) for name, array in feeds.items())
