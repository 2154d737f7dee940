"""StoredPlan: an open plan of the cache folder."""

from __future__ import annotations

from pathlib import Path

from ....errors import BundleError
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.template.shape_tensors import ShapeTensors
from ....plan.weights.weight_files import WeightFiles
from ..background.graph_compiler import Compiler
from ..background.respecialize_policy import Sizes
from ..bundle_model import BundleModel
from ..route import contents_of
from .plan_files import Feeds, has_caches

RECORD = "appending"
"""Key of the KVCacheSpec in a bundle's description."""

TIER = "tier"
"""Key of the tier of a plan in a bundle's description; 'optimized' without it."""

CONTENTS = "contents"
"""Key of the contents of inputs for which alone a plan serves, in hexadecimal, in a bundle's description."""


class StoredPlan(BundleModel):
    """An open plan, for inputs of the names and types that it was made for.

    variant: its program. made_for: the open sizes of that. record: of runs on KV caches, else None. replacement: the
    optimized plan of the same types, with its sizes, for a plan of generic programs.
    """

    replacement: tuple[StoredPlan, Sizes] | None = None

    def __init__(self, path: Path, compiler: Compiler, weights: WeightFiles) -> None:
        """NotServedError on a machine that is too small, BundleError for a damaged plan."""
        super().__init__(path, compiler, weights)
        self.tier = str(self._loaded().meta.get(TIER, self.tier))
        self.variant = self._loaded().find(compiler.rt.info)
        needs = self.variant.needs
        self.made_for = needs.sizes_of(needs.shapes) or ()
        self.record: KVCacheSpec | None = None
        try:
            if RECORD in self._loaded().meta:
                self.record = KVCacheSpec.from_json(self._loaded().meta[RECORD])
            contents = self._loaded().meta.get(CONTENTS, {})
            self.contents = frozenset((str(name), bytes.fromhex(data)) for name, data in contents.items())
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as e:
            raise BundleError(f"'{path}' does not say what its runs take ({e})") from e
        if self.record is not None:
            template = self.variant.template
            if template is None or len(template.names) != self.record.open_sizes:
                raise BundleError(f"'{path}' holds no program for runs on caches")
            self.made_for = template.sizes

    @property
    def given(self) -> ShapeTensors | None:
        """Values that follow from the sizes alone."""
        return None if self.variant.template is None else self.variant.template.given

    def sizes_of(self, feeds: Feeds) -> Sizes | None:
        """The open sizes of a run on `feeds`, of the types that the model takes; None if the plan does not serve them.

        Guards of the program are not looked at.
        """
        if self.record is not None:
            return self.record.sizes_of(feeds)
        if not self.holds_contents(feeds):
            return None
        needs = self.variant.needs
        shapes = {name: array.shape for name, array in feeds.items()}
        return needs.sizes_of(shapes) if needs.shapes.keys() == shapes.keys() and not has_caches(feeds) else None

    def holds_contents(self, feeds: Feeds) -> bool:
        """Whether inputs have the contents for which the plan serves."""
        return not self.contents or contents_of(feeds, [name for name, _ in self.contents]) == self.contents
