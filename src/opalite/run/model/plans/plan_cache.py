"""Plans of .onnx models kept in the cache folder, so that a second start needs neither onnx nor a pass.

A plan is a bundle (plan/bundle/bundle.py) at plans/AB/KEY/SHAPES.opal. KEY names everything that decides a plan but the
shapes (plan_key.py): the model's bytes, those of its data files (external_data_files.py), the device with its driver,
the options, this package's files, what others registered in it, and the versions of onnx and NumPy. What tuning has
found is no part of it: a plan knows what it was planned by (`is_current`). So nothing is ever out of date; what is
damaged is removed with one log line and made again. Large weights have files of their own, which plans of one model
share.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import knobs
from ....cache.cache_folder import cache_folder, discard, trim, usable_folder
from ....cache.cache_keys import digest
from ....cache.hit_counters import count_lookup
from ....cache.temporary_folders import free_bytes
from ....cl.memory.device_tensor import DeviceTensor
from ....cl.programs.build_parallelism import parallel_map
from ....errors import BundleError, ModelFormatError
from ....ir.constants.lazy_array import LazyArray
from ....ir.constants.model_file import ModelFile
from ....ir.device.device_info import DeviceInfo
from ....ir.growable_tensor import GrowableTensor
from ....ir.model_edits import ModelEdits
from ....ir.plugins import foreign_state
from ....plan.bundle.bundle import SUFFIX, Bundle
from ....plan.bundle.write_bundle import save_bundle
from ....plan.program import Program
from ....plan.weights.weight_files import WeightFiles
from ....tune.database_files import tuning_stamp
from ..background.graph_compiler import Compiler
from ..bundle_model import BundleModel
from .external_data_files import ExternalDataFiles, keep_names, read_names
from .plan_key import model_digest, plans_key

if TYPE_CHECKING:
    from ..imported_model import ImportedModel

_log = logging.getLogger(__name__)
KEPT = 4  # plans of one model: for different shapes
IN_VAIN = ".vain"
"""Suffix of an empty file in the place of a plan that was tried for sizes that came back, and was no faster."""

STATES = "states"
"""The folder of plans of runs on caches, in that of the model's."""

_LARGEST = 2  # a plan takes at most this part (one over) of the cache folder's cap
_ROOM = 4  # times its bytes that must be free on the disk for a plan

Feeds = Mapping[str, Any]


class PlanCache:
    """The plans of one model for one device and set of options."""

    def __init__(
        self,
        folder: Path,
        cap_bytes: int,
        compiler: Compiler,
        file: ModelFile | None = None,
        data: ExternalDataFiles | None = None,
        beside: Path | None = None,
    ) -> None:
        """compiler: of the plans' runs. file: the model's, whose contents `folder` is named for; data: its data files,
        if any are known of. beside: the folder where data files lie."""
        self._compiler = compiler
        self._data, self._beside = data, beside
        self._code = foreign_state()
        self.file = file
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.hits = 0
        self.misses = 0

    @property
    def weights(self) -> WeightFiles:
        """Where plans' large constants lie; plans of all kinds share them."""
        return WeightFiles((self.folder.parent if self.folder.name == STATES else self.folder) / "weights")

    def states(self) -> PlanCache:
        """The plans of the model's runs on caches, to be asked for again after `follow`."""
        return PlanCache(self.folder / STATES, self.cap_bytes, self._compiler, self.file, self._data)

    def follow(self, imported: ImportedModel) -> bool:
        """Whether plans of the model, which has been imported now, may be kept or found. They may not where chance
        counts. Where data files are part of it, plans are for what those contain.

        ModelFormatError if the files have changed since this was made.
        """
        if imported.draws or not imported.data_files:
            return not imported.draws
        if self._data is not None:
            self._data.check()
            return True
        if self._beside is None:
            return False
        try:
            data = ExternalDataFiles(self._beside, list(imported.data_files))
        except OSError as e:
            _log.info("no plan is kept: %s", e)
            return False
        if not all(file.is_in_place for file in imported.data_files.values()):
            return False  # what was read is not what was looked at
        keep_names(self.folder, data.locations)
        self._data, self.folder = data, _folder_for(self.folder, data)
        return True

    def newest(self) -> BundleModel | None:
        """The plan used last, which tells what the model's inputs and outputs are; None is a miss."""
        source = next((s for path in self._newest_first() if (s := self._load(path)) is not None), None)
        if source is None:
            self.count(False)
        return source

    def find(self, feeds: Feeds, known: Sequence[BundleModel] = (), within: float | None = None) -> BundleModel | None:
        """The plan for inputs of these types and sizes that was made for the nearest ones, ready to run.

        known: plans that have been asked. within: factors of two that it has to be nearer than.
        """
        source = self._find(feeds, known, within) if fits(feeds) else None
        self.count(source is not None)
        if source is not None:
            _touch(source.path)
        return source

    def _find(self, feeds: Feeds, known: Sequence[BundleModel] = (), within: float | None = None) -> BundleModel | None:
        shapes, asked = {name: array.shape for name, array in feeds.items()}, {Path(p.path) for p in known}
        exact = self.place_of(feeds)
        paths = [exact, *(p for p in self._newest_first() if p != exact)]
        loaded = [(path, source) for path in paths if path not in asked and (source := self._load(path)) is not None]
        for path, source in sorted(loaded, key=lambda pair: pair[1].distance(shapes)):  # of equal ones the newest
            if within is not None and source.distance(shapes) >= within:
                return None
            try:
                if source.serves(self._compiler.rt.info, shapes):
                    return source
            except BundleError as e:
                _drop(path, e)
        return None

    @property
    def size(self) -> int:
        """How many plans there are."""
        return len(self._newest_first())

    def all_but(self, known: Collection[Path]) -> list[tuple[Path, BundleModel]]:
        """All plans that can be read, and are none of those, the newest first."""
        paths = [path for path in self._newest_first() if path not in known]
        return [(path, model) for path in paths if (model := self._load(path)) is not None]

    def count(self, found: bool) -> None:
        """A plan was looked for."""
        count_lookup("plans", found)
        self.hits, self.misses = self.hits + found, self.misses + (not found)

    def discard(self, feeds: Feeds) -> None:
        """Remove the plan that was made for exactly such `feeds`."""
        discard(self.place_of(feeds))

    def record_failed_attempt(self, feeds: Feeds) -> None:
        """A plan for `feeds` was tried and is none the better: it goes, and no process tries again."""
        path = self.place_of(feeds)
        discard(path)
        with suppress(OSError):
            path.with_suffix(IN_VAIN).touch()

    def failed_before(self, feeds: Feeds) -> bool:
        """Whether that was told."""
        return self.place_of(feeds).with_suffix(IN_VAIN).exists()

    def _newest_first(self) -> list[Path]:
        found = [(used, path) for path in self.folder.glob(f"*{SUFFIX}") if (used := _used(path)) is not None]
        return [path for _, path in sorted(found, reverse=True)]

    def keep(self, feeds: Feeds, bundle: Bundle) -> None:
        """Keep a plan, if it is small enough; failing to costs no more than a log line.

        Nor is one kept that kernels made which were registered since the session was opened: it has another key.
        """
        path = self.place_of(feeds)
        if foreign_state() != self._code:
            return
        weights = [a for v in bundle.variants for a in v.stored.weights.values()]
        nbytes = sum(a.nbytes for a in weights if not (isinstance(a, LazyArray) and a.is_mapped))
        if nbytes > self.cap_bytes // _LARGEST:
            _log.info("a plan of %d MiB is too large for the cache", nbytes >> 20)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            free = free_bytes(path.parent)
            if free is not None and free < _ROOM * nbytes:
                _log.info("a plan of %d MiB is not kept: the disk has %d left", nbytes >> 20, free >> 20)
                return
            save_bundle(path, bundle, self.weights, parallel_map)
        except (BundleError, TypeError, OSError) as e:
            _log.info("a plan is not kept: %s", e)
            return
        for old in self._newest_first()[KEPT:]:
            discard(old)
        trim(cache_folder(), self.cap_bytes)

    def forget(self, feeds: Feeds) -> None:
        """Remove the plans for `feeds`: what they compute is not what the session gives."""
        while (plan := self._find(feeds)) is not None:
            path = Path(plan.path)
            discard(path)
            if path.exists():
                return  # a read-only cache

    def drop(self, plan: BundleModel, fault: object) -> None:
        """Remove a plan, which cannot be used. fault: what is wrong with it; None where that is known."""
        if fault is None:
            discard(Path(plan.path))
        else:
            _drop(Path(plan.path), fault)

    def place_of(self, feeds: Feeds) -> Path:
        """The file of the plan that was made for exactly such `feeds`."""
        types = sorted((name, array.dtype.str, array.shape, *_lies(array)) for name, array in feeds.items())
        return self.folder / f"{digest(repr(types))[:24]}{SUFFIX}"

    def _load(self, path: Path) -> BundleModel | None:
        if not path.is_file():
            return None
        try:
            return BundleModel(path, self._compiler, self.weights)
        except BundleError as e:
            _drop(path, e)
            return None


def fits(feeds: Feeds) -> bool:
    """Whether `feeds` are plain numeric arrays, in host or device memory, the only ones that plans are kept for."""
    return all(
        type(a) in (np.ndarray, DeviceTensor) and a.dtype.isnative and not a.dtype.hasobject for a in feeds.values()
    )


def is_current(program: Program, device: DeviceInfo) -> bool:
    """Whether what tuning knows now would give the same `program`."""
    if program.tuning is None or program.tuning.stamp == tuning_stamp():
        return True
    from ....tune.plan_dependencies import holds  # imports kernels, which a process with a plan does without

    return holds(program.tuning, device)


def open_plans(
    model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None
) -> PlanCache | None:
    """The plans of `model`; None where none are kept, or the model cannot be read.

    None are kept without a cache folder, while a session searches (`tune`), and under the settings that look into
    planning, which would have nothing to show.
    """
    options = compiler.options
    looks = knobs.get("OPALITE_STOP_AFTER") is not None or knobs.get("OPALITE_CHECK") or knobs.get("OPALITE_DEBUG")
    kept = usable_folder()
    if kept is None or not knobs.get("OPALITE_PLAN_CACHE") or looks or options.tune != "none":
        return None
    if not isinstance(model, bytes) and not (isinstance(model, str | os.PathLike) and Path(model).is_file()):
        return None  # a pipe can be read once; of anything else whoever loads it says what is wrong
    try:
        # A system that locks open files would keep the model from being replaced.
        file = None if isinstance(model, bytes) or os.name != "posix" else ModelFile(Path(model))
        key = plans_key(model_digest(model) if file is None else file.digest(), compiler, edits)
    except (OSError, ModelFormatError):
        return None
    folder = kept / "plans" / key[:2] / key
    beside = Path(edits.folder) if edits and edits.folder else None if isinstance(model, bytes) else Path(model).parent
    data = None
    if beside is not None and (names := read_names(folder)):
        try:
            data = ExternalDataFiles(beside, names)
        except OSError:
            return None  # whoever loads the model says which file is missing
        folder = _folder_for(folder, data)
    return PlanCache(folder, knobs.get("OPALITE_CACHE_MB") << 20, compiler, file, data, beside)


def _folder_for(folder: Path, data: ExternalDataFiles) -> Path:
    """Where the plans of a model with data files lie. folder: that of its own bytes."""
    key = digest(folder.name, data.key)
    return folder.parents[1] / key[:2] / key


def _used(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None


def _lies(array: Any) -> tuple[Any, ...]:
    """How what lies in reserved memory does."""
    return (array.axis, array.grows, array.narrow) if isinstance(array, GrowableTensor) else ()


def _touch(path: str | os.PathLike[str]) -> None:
    with suppress(OSError):  # a read-only cache serves all the same
        os.utime(path)


def _drop(path: Path, fault: object) -> None:
    _log.warning("removed plan %s… of the cache: %s; it will be made again", path.stem[:12], fault)
    discard(path)
