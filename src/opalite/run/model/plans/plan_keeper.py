"""Keepers: store the plans of one segment, and what is left to build of them."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ....cache.cache_folder import discard
from ....errors import BundleError
from ....plan.bundle.dispatch_key import DispatchKey
from ....plan.program import Program
from ....plan.template.program_template import Template

if TYPE_CHECKING:
    from ....importer.walk.import_run import Selection
    from ....importer.walk.segments import Segment
    from ..background.respecialize_policy import Sizes
    from ..imported_model import ImportedModel
    from ..route import Contents
    from .plan_files import Feeds
    from .plan_store import PlanStore
    from .stored_plan import StoredPlan


class Keeper(ABC):
    """Keeper of the plans of a segment, of which the optimized one has the given path.

    An optimized plan is stored when it is planned, before its programs are built: the next process builds what is
    missing. A plan of generic programs is stored if an earlier process needed one too: most models need it once.

    recurs: an earlier process used generic programs and left others unbuilt. has_kept: an optimized plan.
    """

    def __init__(self, store: PlanStore, path: Path) -> None:
        self._store, self._path = store, path
        self.recurs = store.has_pending
        self.has_kept = False

    @abstractmethod
    def keep(self, content: Program | Template, notes: tuple[str, ...], tier: str = "optimized") -> None:
        """Store a plan of the segment. A second one of the same tier replaces the first."""

    def find(self, sizes: Sizes, waits: bool) -> StoredPlan | None:
        """The stored plan, if it can run now at `sizes`. waits: the caller waits for programs."""
        return None

    def begin_generic(self, content: Program | Template, notes: tuple[str, ...]) -> None:
        """Record that runs use the generic plan `content` until the optimized programs are built."""
        self._store.mark_pending(self._path)
        if self.recurs:
            self.keep(content, notes, "generic")

    def discard(self) -> None:
        """Delete the optimized plan, whose programs do not compile, so that no process tries again."""
        discard(self._path)
        self._store.end_pending(self._path)

    def end_generic(self) -> None:
        """Record that the optimized programs are built."""
        self._store.end_pending(self._path)


class PlanKeeper(Keeper):
    """Keeper of the plans of `segment`, which is a whole model for inputs of `types` and with `contents`."""

    def __init__(
        self,
        store: PlanStore,
        imported: ImportedModel,
        segment: Segment,
        types: Feeds,
        choice: Selection,
        contents: Contents,
    ) -> None:
        """choice: of the segment, by `contents`."""
        super().__init__(store, store.path_for(types, contents=contents))
        self._imported, self._types = imported, types
        self._segment = weakref.ref(segment)  # a job that holds the keeper does not keep a dropped segment
        self._choice, self._contents = choice, contents
        self._has_slot: bool | None = None

    def keep(self, content: Program | Template, notes: tuple[str, ...], tier: str = "optimized") -> None:
        """See Keeper.keep."""
        self.has_kept |= tier == "optimized"
        segment = self._segment()
        if self._has_slot is None:
            self._has_slot = self._store.take_slot(False, self._imported.importer.symbols)
        if self._has_slot and segment is not None:
            with suppress(BundleError):  # for example, an output is an input
                whole = self._imported.complete(content, segment, self._choice.inputs)
                shapes = {name: array.shape for name, array in self._types.items()}
                needs = self._imported.needs(whole, segment, shapes, self._choice.inputs)
                path = self._store.path_for(self._types, tier, self._contents)
                self._store.store_plan(
                    path, self._imported, content, whole, needs, notes, tier=tier, contents=self._contents
                )


class PartKeeper(Keeper):
    """Keeper of the plan of one of several segments, which only the importer can name. Generic plans are not kept."""

    def __init__(self, store: PlanStore, imported: ImportedModel, identity: str) -> None:
        """identity: of the segment (`Stage.identity`)."""
        super().__init__(store, store.path_for_part(identity))
        self._imported = imported

    def find(self, sizes: Sizes, waits: bool) -> StoredPlan | None:
        """See Keeper.find."""
        return self._store.find_part(self._path, sizes, waits)

    def keep(self, content: Program | Template, notes: tuple[str, ...], tier: str = "optimized") -> None:
        """See Keeper.keep."""
        if tier != "optimized":
            return
        self.has_kept = True
        at_hand = content.at(content.sizes) if isinstance(content, Template) else content
        assert at_hand is not None
        self._store.store_plan(self._path, self._imported, content, content, DispatchKey.of(at_hand), notes)
