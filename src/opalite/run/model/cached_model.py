"""CachedSource: an .onnx model by its plan from the cache where there is one; else imported, and its plan kept."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import BundleError, ModelFormatError
from ...ir.device import DeviceInfo
from ...ir.edits import ModelEdits
from ...plan.bundle import Bundle, Needs, Variant
from ...plan.program import Program
from ..execute.trace import Timing
from .bundle_model import BundleSource
from .compiler import Compiler
from .description import describe_model
from .example_shapes import example_shapes
from .model import Whole
from .overflow import is_finite
from .plan_cache import PlanCache, fits, model_digest

if TYPE_CHECKING:
    from ...importer.walk.segments import Segment
    from ..execute.exchange import Target
    from .onnx_model import OnnxSource


class CachedSource:
    """An .onnx model behind a session.

    onnx is imported and the file parsed when that is needed: no plan is kept, or one for other shapes, or the feeds
    want a closer look. From then on the session works as one without plans. It keeps the first plan that it makes.
    """

    def __init__(
        self, model: str | os.PathLike[str] | bytes, plans: PlanCache, edits: ModelEdits | None = None
    ) -> None:
        self._model = model
        self._edits = edits
        self._plans = plans
        self._onnx: OnnxSource | None = None
        self._plan: BundleSource | None = None
        self._keeps = True
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

    def whole(self) -> Whole | None:
        """The last run as one program, if it was one."""
        source = self._onnx or self._plan
        return None if source is None else source.whole()

    def reset(self) -> None:
        """Forget what was compiled."""
        self._plan = None
        if self._onnx is not None:
            self._onnx.reset()

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays; InputError says what does not fit."""
        if self._onnx is None and fits(feeds) and self._match(feeds):
            return dict(feeds)
        return self._imported().check_feeds(feeds)

    def run(
        self,
        compiler: Compiler,
        feeds: Mapping[str, Any],
        timing: Timing,
        targets: Mapping[str, Target] | None = None,
    ) -> list[Any]:
        """The model's outputs in order."""
        started = time.perf_counter()
        plan = self._find(compiler, feeds) if self._onnx is None and compiler.options.tune == "none" else None
        if plan is not None:
            timing.import_s += time.perf_counter() - started
            outputs = plan.run(compiler, feeds, timing, targets)
            halves = compiler.ran[-1].program.stores_halves
            compiler.ran[-1].may_overflow = halves  # so that every run comes by here
            if not halves or is_finite(outputs):
                return outputs
            # Half may have overflowed: only the graph can be planned anew in float32.
            compiler.forget_trace()
            started = time.perf_counter()
        source = self._imported()
        timing.import_s += time.perf_counter() - started
        may_keep = self._keeps and source.repeats and fits(feeds) and compiler.options.tune == "none"
        tell = partial(self._keep, compiler, feeds) if may_keep else None
        outputs = source.run(compiler, feeds, timing, targets, tell)
        if compiler.overflowed and fits(feeds):
            self._plans.forget(feeds)  # it was made before half was seen to overflow
        return outputs

    def _imported(self) -> OnnxSource:
        if self._onnx is None:
            from .onnx_model import OnnxSource

            self._onnx, self._plan = OnnxSource(self._model, self._edits, self._contents()), None
        return self._onnx

    def _contents(self) -> bytes | None:
        """The model's bytes; None for a file that cannot be read. ModelFormatError if it is not what it was."""
        if isinstance(self._model, bytes):
            return None
        try:
            with open(self._model, "rb") as f:
                found = f.read()
        except OSError:
            return None  # whoever loads it says what is wrong
        if model_digest(found) != self._plans.contents:
            raise ModelFormatError(
                f"'{os.fspath(self._model)}' has changed since the session was opened: open a new session"
            )
        return found

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

    def _find(self, compiler: Compiler, feeds: Mapping[str, Any]) -> BundleSource | None:
        """The plan for `feeds`, readable."""
        shapes = {name: array.shape for name, array in feeds.items()}
        try:
            if self._plan is not None:
                self._plan.read(compiler.rt.info, shapes)
                return self._plan
        except BundleError:
            pass  # other shapes
        plan = self._plans.find(feeds)
        try:
            if plan is not None:
                plan.read(compiler.rt.info, shapes)
        except BundleError as e:
            self._plans.drop(feeds, e)
            return None
        self._plan = plan
        return plan

    def _keep(self, compiler: Compiler, feeds: Mapping[str, Any], program: Program, segment: Segment) -> None:
        self._keeps = False
        assert self._onnx is not None
        try:
            whole = self._onnx.complete(program, segment)
            about = {**describe_model(self._onnx), "notes": compiler.notes}
            needs = Needs.of(whole, {name: array.shape for name, array in feeds.items()})
            self._plans.keep(feeds, Bundle([Variant(compiler.rt.info, whole, needs=needs)], about))
        except BundleError:
            return  # such as an output that is an input: nothing to gain
        program.weight_keys = whole.weight_keys
