"""PlanStore: plans of .onnx models, found in the cache folder, so that a second start needs neither onnx nor passes.

Plans of runs on KV caches also record what their runs take and give (plan/kv_cache_spec.py): a prompt and the tokens
after it take different programs. The tuning database is not part of a plan's key: a plan records the tuning results
that it used (`_is_current`). A damaged plan is deleted with one log line and made again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....cache.cache_folder import discard
from ....cache.hit_counters import count_lookup
from ....cl.programs.background_throttle import background_planning
from ....errors import BundleError
from ....ir.device.device_info import DeviceInfo
from ....plan.bundle.bundle import Bundle, NotServedError, Variant, programs_of
from ....plan.bundle.dispatch_key import DispatchKey
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.program import Program
from ....plan.template.program_template import Template
from ....plan.template.shape_tensors import ShapeTensors
from ....tune.database_files import tuning_stamp
from ..background.plan_graph import specs
from ..background.respecialize_policy import FAR, Sizes, distance
from ..bundle_model import BundleModel
from ..executable_cache import ExecutableCache
from ..model_inputs_outputs import describe_model
from ..route import NO_CONTENTS, Contents, contents_of, types_key
from .plan_files import GENERIC, KEPT, STATES, Feeds, PlanFiles, fits, has_caches, kind_of, types_alone
from .plan_keeper import PlanKeeper
from .stored_plan import CONTENTS, RECORD, TIER, StoredPlan

if TYPE_CHECKING:
    from ....importer.walk.import_run import Selection
    from ....importer.walk.segments import Segment
    from ..imported_model import ImportedModel

_log = logging.getLogger(__name__)

_TYPES_KEPT = 256
"""Number of input types whose plan is cached."""


class PlanStore(PlanFiles):
    """The plans of one model for one device and set of options. Thread-safe.

    A session stores the first plan that it makes, and up to KEPT plans if sizes are open, since one plan serves all
    sizes for which its guards hold; as many plans of runs on KV caches.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._opening = threading.RLock()  # for opening a plan
        self._lock = threading.Lock()  # for what follows
        self._plans: list[StoredPlan] = []
        self._seen: set[Path] = set()
        self._found: OrderedDict[Any, tuple[StoredPlan, Sizes]] = OrderedDict()  # by types of arrays
        self._slots = {False: KEPT, True: KEPT}  # plans that this session may store, without and with KV caches

    @property
    def caches(self) -> list[ExecutableCache]:
        """The compiled programs of the open plans."""
        with self._lock:
            return [plan.executables for plan in self._plans]

    def reset(self) -> None:
        """Evict compiled programs; plans are opened again."""
        with self._lock:
            for plan in self._plans:
                plan.executables.clear()
            self._plans, self._seen = [], set()
            self._found.clear()

    # Finding plans

    def newest(self) -> BundleModel | None:
        """The plan used last, for its description of inputs and outputs; None counts as a miss."""
        with self._opening:
            for kind in (STATES, "", GENERIC):
                for plan in self._open_new(kind):
                    return plan
        count_lookup("plans", False)
        return None

    def find(self, feeds: Feeds, is_imported: bool, waits: bool = False) -> tuple[StoredPlan, Sizes] | None:
        """(plan, sizes) of runs on such `feeds`: arrays, and GrowableTensors for caches; None if no plan can run now.

        Of several the plan made for the nearest sizes, of generic programs if those of no other are complete. A found
        plan comes first in later calls. is_imported: the model is imported, which serves other types of arrays than
        those found before. waits: the caller waits for optimized programs.
        """
        key = types_key(feeds)
        with self._lock:
            found = self._found.get(key)
            if found is not None and found[0].holds_contents(feeds):
                self._found.move_to_end(key)
            else:
                found = None
        if found is not None or (is_imported and key is not None) or not fits(feeds):
            return found
        with self._opening, background_planning():
            found = self._find(feeds, not is_imported, waits)
            if found is not None and key is not None:
                with self._lock:
                    self._found[key] = found
                    if len(self._found) > _TYPES_KEPT:
                        self._found.popitem(last=False)
        return found

    def _find(self, feeds: Feeds, looks: bool, waits: bool) -> tuple[StoredPlan, Sizes] | None:
        """looks: in the cache folder too, if no open plan that was made for near sizes is ready."""
        pairs: list[tuple[StoredPlan, Sizes]] = []
        for is_last in (False, True) if looks else (True,):
            if looks and is_last:
                for _ in self._open_new(kind_of(feeds)):
                    pass
            pairs = self._serving(feeds)
            if is_last or any(distance(plan.made_for, sizes) < FAR for plan, sizes in pairs):
                for pair in pairs:
                    if self._is_ready(*pair, waits):
                        self.end_pending(Path(pair[0].path))
                        return pair
        found = self._find_generic(feeds, pairs[0]) if looks and pairs and not has_caches(feeds) else None
        if looks and found is None:
            count_lookup("plans", False)
        return found

    def _find_generic(self, feeds: Feeds, instead_of: tuple[StoredPlan, Sizes]) -> tuple[StoredPlan, Sizes] | None:
        """The plan of generic programs that serves `feeds` until the programs of another plan are complete."""
        for _ in self._open_new(GENERIC):
            pass
        for plan, sizes in self._serving(feeds, "generic"):
            if not self.compiler.rt.programs.missing(specs(plan.variant.stored)) and self._is_ready(plan, sizes):
                plan.replacement = instead_of
                return plan, sizes
        return None

    def _open_new(self, kind: str) -> Iterator[StoredPlan]:
        """The plans of a kind in the cache folder that were not seen yet, opened one by one, the newest first."""
        for path in self.newest_first(kind):
            if path in self._seen:
                continue
            self._seen.add(path)
            try:
                plan = StoredPlan(path, self.compiler, self.weights)
            except NotServedError:
                continue
            except BundleError as e:
                _drop(path, e)
                continue
            with self._lock:
                self._plans.append(plan)
            yield plan

    def _serving(self, feeds: Feeds, tier: str = "optimized") -> list[tuple[StoredPlan, Sizes]]:
        """Open plans that serve `feeds`, with the sizes; those made for near sizes first."""
        plans = [plan for plan in [*self._plans] if plan.tier == tier]
        pairs = [(plan, sizes) for plan in plans if (sizes := plan.sizes_of(feeds)) is not None]
        pairs.sort(key=lambda pair: distance(pair[0].made_for, pair[1]))
        return [pair for pair in pairs if self._holds(*pair)]

    def _holds(self, plan: StoredPlan, sizes: Sizes) -> bool:
        try:
            template = plan.variant.template
            return template is None or template.holds(sizes)
        except BundleError as e:
            self._forget(plan)
            _drop(Path(plan.path), e)
            return False

    def _is_ready(self, plan: StoredPlan, sizes: Sizes, waits: bool = False) -> bool:
        """Whether a plan can run now: it is compiled, or current with the tuning database and readable.

        A program that was planned before some tuning serves the sizes that it was made for alone. For runs on arrays
        a few missing programs are built first, because an earlier process ended before they were built. With more of
        them, or if the model did not run by generic programs, those are faster. waits: all may be missing.
        """
        is_compiled = plan.executables.find(plan.variant, sizes) is not None
        if is_compiled and plan.record is not None:
            return True
        tuning, compiler = plan.variant.stored.tuning, self.compiler
        if sizes != plan.made_for and tuning is not None and tuning.stamp != tuning_stamp():
            return False
        if is_compiled:
            return True
        try:
            program = plan.load_program(plan.variant)
        except BundleError as e:
            self._forget(plan)
            _drop(Path(plan.path), e)
            return False
        if not _is_current(program, compiler.rt.info):
            return False  # tuning has chosen other settings since
        is_waited_for = waits or plan.record is not None or compiler.background is None
        is_missing = not is_waited_for and compiler.rt.programs.missing(specs(program))
        if is_missing and not (self.has_pending and compiler.build_first(specs(program))):
            return False
        count_lookup("plans", True)
        with suppress(OSError):  # a read-only cache is used too
            os.utime(plan.path)
        return True

    def find_part(self, path: Path, sizes: Sizes, waits: bool) -> StoredPlan | None:
        """The plan with that path of one segment at `sizes`; None if there is none, or if it cannot run now."""
        if path in self._seen or not path.exists():
            return None
        with self._opening, background_planning():
            self._seen.add(path)
            try:
                plan = StoredPlan(path, self.compiler, self.weights)
                template = plan.variant.template
                names = () if template is None else template.names
                plan.made_for = sizes if template is None else template.sizes
                if len(names) != len(sizes) or not self._holds(plan, sizes) or not self._is_ready(plan, sizes, waits):
                    return None
            except NotServedError:
                return None
            except BundleError as e:
                _drop(path, e)
                return None
            self.end_pending(path)
            return plan

    # Storing and deleting plans

    def keeper(self, imported: ImportedModel, segment: Segment, feeds: Feeds, choice: Selection) -> PlanKeeper | None:
        """A keeper of the plans of a run on `feeds`, whose whole model is `segment`; None if none may be stored.

        choice: of the segment.
        """
        contents = contents_of(feeds, choice.looked_at)
        if contents is None or segment.tasks or not (self._slots[False] and fits(feeds)):
            return None
        return PlanKeeper(self, imported, segment, types_alone(feeds), choice, contents)

    def store_whole(
        self,
        imported: ImportedModel,
        types: Feeds,
        segment: Segment,
        program: Program | Template,
        whole: Program | Template,
        notes: Sequence[str],
    ) -> None:
        """Store `whole`, `program` of `segment` with ports that are the model's own, for inputs of `types`."""
        with suppress(BundleError):
            needs = imported.needs(whole, segment, {name: array.shape for name, array in types.items()})
            self.store_plan(self.path_for(types), imported, program, whole, needs, notes)

    def store_for_caches(
        self,
        imported: ImportedModel,
        feeds: Feeds,
        record: KVCacheSpec,
        given: ShapeTensors | None,
        program: Program | Template,
        notes: Sequence[str],
    ) -> None:
        """Store the plan of runs on KV caches and on such `feeds`. given: values that follow from the sizes alone."""
        may = fits(feeds) and isinstance(program, Template) and not record.has_constants
        if not may or not self.take_slot(True):
            return
        assert isinstance(program, Template)
        content = replace(program, program=replace(program.program), given=given)
        at_hand = content.at(content.sizes)
        assert at_hand is not None
        shapes = {name: spec.shape for name, spec in {**record.tensors, **record.contents}.items()}
        with suppress(BundleError):
            needs = DispatchKey.of(at_hand, shapes, {n: spec.numbers for n, spec in record.tensors.items()})
            self.store_plan(self.path_for(feeds), imported, program, content, needs, notes, record)

    def take_slot(self, has_caches: bool, has_symbols: bool = True) -> bool:
        """Count a plan to store; False if this session has stored enough.

        has_symbols: of the import; without them each shape has a plan of its own, and one is enough.
        """
        with self._lock:
            left = self._slots[has_caches]
            self._slots[has_caches] = max(0, left - 1) if has_symbols else 0
            return left > 0

    def store_plan(
        self,
        path: Path,
        imported: ImportedModel,
        program: Program | Template,
        content: Program | Template,
        needs: DispatchKey,
        notes: Sequence[str],
        record: KVCacheSpec | None = None,
        tier: str = "optimized",
        contents: Contents = NO_CONTENTS,
    ) -> None:
        """Store `content` at `path`: `program`, or a copy of it with everything that its runs need.

        contents: of inputs, for which alone it serves.
        """
        about = {**describe_model(imported), "notes": list(notes), TIER: tier}
        if contents:
            about[CONTENTS] = {name: data.hex() for name, data in contents}
        if record is not None:
            about[RECORD] = record.to_json()
        variant = Variant(self.compiler.rt.info, content, needs=needs)
        self._seen.add(path)
        self.store(path, Bundle([variant], about))
        own, stored = programs_of(program)[0], variant.stored
        own.weight_keys.update((n, key) for n, key in stored.weight_keys.items() if n in own.weights)
        if stored is not own:
            stored.weights = {}  # else they live until the garbage collector runs

    def discard(self, plan: StoredPlan) -> None:
        """Delete a plan whose outputs overflowed."""
        self._forget(plan)
        discard(Path(plan.path))

    def delete(self, feeds: Feeds) -> None:
        """Delete all plans that serve `feeds`: their outputs overflow."""
        if fits(feeds):
            discard(self.path_for(feeds))
            with self._opening:
                for _ in self._open_new(kind_of(feeds)):
                    pass
                for plan, _ in self._serving(feeds):
                    self.discard(plan)

    def forget_found(self, feeds: Feeds) -> None:
        """Have runs on such `feeds` go through the imported model."""
        with self._lock:
            self._found.pop(types_key(feeds), None)

    def _forget(self, plan: StoredPlan) -> None:
        with self._lock:
            if plan in self._plans:
                self._plans.remove(plan)


def _is_current(program: Program, device: DeviceInfo) -> bool:
    """Whether planning with the tuning database as it is now would give the same `program`."""
    if program.tuning is None or program.tuning.stamp == tuning_stamp():
        return True
    from ....tune.plan_dependencies import holds  # imports kernels, which plans do not need

    return holds(program.tuning, device)


def _drop(path: Path, fault: object) -> None:
    _log.warning("removed plan %s… of the cache: %s; it will be made again", path.stem[:12], fault)
    discard(path)
