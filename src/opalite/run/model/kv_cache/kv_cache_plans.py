"""KVCachePlans: stored plans of a model's runs on KV caches: a prompt and the tokens after it take different programs.

A plan is a bundle of one template, and a record of the inputs and outputs of its runs (plan/kv_cache_spec.py). Plans
share weights, which are stored once (plan/weights/weight_files.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....cl.programs.background_throttle import background_planning
from ....errors import BundleError
from ....plan.bundle.bundle import Bundle, Variant
from ....plan.bundle.dispatch_key import DispatchKey
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.template.program_template import Template
from ....plan.template.shape_tensors import ShapeTensors
from ....tune.database_files import tuning_stamp
from ...execute.run_trace import RunTrace
from ..background.graph_compiler import Compiler
from ..background.respecialize_policy import distance
from ..bundle_description import describe_model
from ..bundle_model import BundleModel
from ..executable_cache import Compiled, ExecutableCache
from ..plans.plan_cache import KEPT, PlanCache, is_current

if TYPE_CHECKING:
    from ..imported_model import ImportedModel

_RECORD = "appending"
"""Key of the record in a bundle's description."""


class KVCachePlan:
    """An open plan."""

    def __init__(self, model: BundleModel, compiler: Compiler) -> None:
        """BundleError for a bundle without such a plan, or for another device."""
        self.model = model
        self.variant = model.only(compiler.rt.info)
        try:
            self.record = KVCacheSpec.from_json(model.about[_RECORD])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as e:
            raise BundleError(f"'{model.path}' does not say what its runs take ({e})") from e

    @property
    def template(self) -> Template:
        """The template; BundleError if it is damaged or missing."""
        template = self.variant.template
        if template is None or len(template.names) != self.record.open_sizes:
            raise BundleError(f"'{self.model.path}' holds no program for runs on caches")
        return template

    @property
    def given(self) -> ShapeTensors | None:
        """Values that follow from sizes alone."""
        return self.template.given

    @property
    def executables(self) -> ExecutableCache:
        """Its compiled programs."""
        return self.model.executables

    def compiled(self, sizes: tuple[int, ...], trace: RunTrace) -> Compiled:
        """The executable for `sizes`, which the plan was found for."""

        def make() -> Compiled:
            made = self.model.compiled(self.variant, sizes, trace)
            made.may_overflow = made.executable.program.stores_halves
            return made

        return self.executables.find_or_make(self.variant, sizes, make)[0]


class KVCachePlans:
    """Plans of one model, device and set of options. Thread-safe."""

    def __init__(self, plans: PlanCache, compiler: Compiler) -> None:
        """plans: of the model's runs on arrays, whose folder holds these."""
        self._plans, self._compiler = plans, compiler
        self._lock = threading.RLock()
        self._open: list[KVCachePlan] = []
        self._seen: set[Path] = set()
        self._kept = 0

    def newest(self) -> BundleModel | None:
        """A plan, for its description of the model's inputs and outputs; None if there is none."""
        with self._lock:
            plan = next(iter(self._open_new()), None)
            return None if plan is None else plan.model

    def find(self, feeds: Mapping[str, Any], looks: bool) -> tuple[KVCachePlan, tuple[int, ...]] | None:
        """(plan, sizes) for runs on such `feeds`: the plan made for the nearest sizes that can be compiled at once.

        looks: open plans of the cache folder too.
        """
        with self._lock, background_planning():
            found = self._serving(feeds)
            if looks and not found:
                self._open_new()
                found = self._serving(feeds)
                self._plans.count(bool(found))
            for plan, sizes in found:
                if self._is_ready(plan, sizes):
                    return plan, sizes
        return None

    def _serving(self, feeds: Mapping[str, Any]) -> list[tuple[KVCachePlan, tuple[int, ...]]]:
        found = []
        for plan in [*self._open]:
            sizes = plan.record.sizes_of(feeds)
            if sizes is None:
                continue
            try:
                if plan.template.holds(sizes):
                    found.append((plan, sizes))
            except BundleError as e:
                self._drop(plan, e)
        return sorted(found, key=lambda pair: distance(pair[0].template.sizes, pair[1]))

    def _is_ready(self, plan: KVCachePlan, sizes: tuple[int, ...]) -> bool:
        """Whether a plan can run: it is compiled, or current with the tuning database, with its weights readable."""
        if plan.executables.find(plan.variant, sizes) is not None:
            return True
        record = plan.variant.stored.tuning
        knows = plan.template.sizes == sizes or record is None or record.stamp == tuning_stamp()
        if not knows or not is_current(plan.variant.stored, self._compiler.rt.info):
            return False
        try:
            plan.model.load_program(plan.variant)
        except BundleError as e:
            self._drop(plan, e)
            return False
        return True

    def _open_new(self) -> list[KVCachePlan]:
        """Open new plans of the cache folder; all open plans, the newest first."""
        for path, model in self._plans.states().all_but(self._seen):
            self._seen.add(path)
            try:
                self._open.append(KVCachePlan(model, self._compiler))
            except BundleError as e:
                self._plans.drop(model, e)
        return self._open

    def store(
        self,
        imported: ImportedModel,
        record: KVCacheSpec,
        template: Template,
        program: Template,
        notes: tuple[str, ...],
        feeds: Mapping[str, Any],
    ) -> None:
        """Store `template`, a copy of `program` with everything that its runs need, for later processes."""
        if record.has_constants or self._kept >= KEPT:
            return
        tensors = {**record.tensors, **record.contents}
        bare = replace(template, program=replace(template.program))
        try:
            about = {**describe_model(imported), "notes": list(notes), _RECORD: record.to_json()}
            at_hand = bare.at(bare.sizes)
            assert at_hand is not None
            axes = {n: a.numbers for n, a in record.tensors.items()}
            needs = DispatchKey.of(at_hand, {n: a.shape for n, a in tensors.items()}, axes)
            variant = Variant(self._compiler.rt.info, bare, needs=needs)
            with self._lock:
                self._kept += 1
                states = self._plans.states()
                self._seen.add(states.path_for(feeds))
                states.store(feeds, Bundle([variant], about))
        except BundleError:
            return
        program.program.weight_keys.update(variant.stored.weight_keys)  # its programs use them too
        bare.program.weights = {}  # else they live until the garbage collector runs

    def discard(self, plan: KVCachePlan) -> None:
        """Delete a plan whose outputs overflowed."""
        self._drop(plan, None)

    def delete(self, feeds: Mapping[str, Any]) -> None:
        """Delete the plan that was made for `feeds`."""
        self._plans.states().discard(feeds)

    def _drop(self, plan: KVCachePlan, fault: object) -> None:
        with self._lock:
            if plan in self._open:
                self._open.remove(plan)
        self._plans.drop(plan.model, fault)

    @property
    def caches(self) -> list[ExecutableCache]:
        """Its compiled programs."""
        with self._lock:
            return [plan.executables for plan in self._open]

    def reset(self) -> None:
        """Evict compiled programs; plans are opened again."""
        with self._lock:
            for plan in self._open:
                plan.executables.clear()
            self._open, self._seen = [], set()
