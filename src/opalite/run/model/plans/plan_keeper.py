"""PlanKeeper: stores the plans of one segment that is a whole model, and what is left to build of them."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from ....cache.cache_folder import discard
from ....errors import BundleError
from ....plan.program import Program
from ....plan.template.program_template import Template

if TYPE_CHECKING:
    from ....importer.walk.import_run import Selection
    from ....importer.walk.segments import Segment
    from ..imported_model import ImportedModel
    from ..route import Contents
    from .plan_files import Feeds
    from .plan_store import PlanStore


class PlanKeeper:
    """Keeper of the plans of `segment`, for inputs of `types` and with `contents`.

    An optimized plan is stored when it is planned, before its programs are built: the next process builds what is
    missing. A plan of generic programs is stored if an earlier process needed one too: most models need it once.
    """

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
        self._store, self._imported, self._types = store, imported, types
        self._segment = weakref.ref(segment)  # a job that holds the keeper does not keep a dropped segment
        self._choice, self._contents = choice, contents
        self._path = store.path_for(types, contents=contents)
        self.recurs = store.has_pending
        self.has_kept = False  # an optimized plan
        self._has_slot: bool | None = None

    def keep(self, content: Program | Template, notes: tuple[str, ...], tier: str = "optimized") -> None:
        """Store a plan of the segment. A second one of the same tier replaces the first."""
        segment = self._segment()
        self.has_kept |= tier == "optimized"
        if self._has_slot is None:
            self._has_slot = self._store.take_slot(False, isinstance(content, Template))
        if self._has_slot and segment is not None:
            with suppress(BundleError):  # for example, an output is an input
                whole = self._imported.complete(content, segment, self._choice.inputs)
                shapes = {name: array.shape for name, array in self._types.items()}
                needs = self._imported.needs(whole, segment, shapes, self._choice.inputs)
                self._store.store_plan(
                    self._imported, self._types, content, whole, needs, notes, tier=tier, contents=self._contents
                )

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
