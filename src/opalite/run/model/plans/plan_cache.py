"""PlanCache: plans of .onnx models in the cache folder, so that a second start needs neither onnx nor passes.

A plan is a bundle (plan/bundle/bundle.py) at plans/AB/KEY/SHAPES.opal. KEY is a digest of everything that decides a
plan except the shapes (plan_key.py): the model's bytes and data files (external_data_files.py), device and driver,
options, this package's files, plugins, and the versions of onnx and NumPy. The tuning database is not part of KEY: a
plan records the tuning results that it used (`is_current`). So no plan is ever outdated by its key. A damaged plan is
deleted with one log line and made again. Large weights are stored once for all plans of a model.
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
from .external_data_files import ExternalDataFiles, read_names, store_names
from .plan_key import model_digest, plans_key

if TYPE_CHECKING:
    from ..imported_model import ImportedModel

_log = logging.getLogger(__name__)
KEPT = 4  # plans of one model: for different shapes
FAILED = ".failed"
"""Suffix of an empty file in place of a plan for recurring sizes that was no faster than the one in use."""

STATES = "states"
"""Folder of plans of runs on KV caches, in the folder of the model's plans."""

_MAX_SHARE = 2  # the largest plan is one half of the cache folder's limit
_FREE_FACTOR = 4  # free bytes on the disk needed for each byte of a plan

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
        data_folder: Path | None = None,
    ) -> None:
        """compiler: runs the plans. file: the model's, whose digest names `folder`. data: its data files, if known.

        data_folder: the folder of the data files.
        """
        self._compiler = compiler
        self._data, self._data_folder = data, data_folder
        self._code = foreign_state()
        self.file = file
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.hits = 0
        self.misses = 0

    @property
    def weights(self) -> WeightFiles:
        """The files of large weights, which all plans of the model share."""
        return WeightFiles((self.folder.parent if self.folder.name == STATES else self.folder) / "weights")

    def states(self) -> PlanCache:
        """Plans of runs on KV caches; their folder changes with `resolve_data_files`."""
        return PlanCache(self.folder / STATES, self.cap_bytes, self._compiler, self.file, self._data)

    def resolve_data_files(self, imported: ImportedModel) -> bool:
        """Whether plans of the imported model may be stored and found: not if it draws random numbers.

        Plans of a model with data files are keyed by the contents of those. ModelFormatError if the files have changed
        since this was made.
        """
        if imported.draws or not imported.data_files:
            return not imported.draws
        if self._data is not None:
            self._data.check()
            return True
        if self._data_folder is None:
            return False
        try:
            data = ExternalDataFiles(self._data_folder, list(imported.data_files))
        except OSError as e:
            _log.info("no plan is stored: %s", e)
            return False
        if not all(file.is_in_place for file in imported.data_files.values()):
            return False  # the model may have read other contents
        store_names(self.folder, data.locations)
        self._data, self.folder = data, _folder_for(self.folder, data)
        return True

    def newest(self) -> BundleModel | None:
        """The plan used last, for its description of inputs and outputs; None is a miss."""
        source = next((s for path in self._newest_first() if (s := self._load(path)) is not None), None)
        if source is None:
            self.count(False)
        return source

    def find(self, feeds: Feeds, known: Sequence[BundleModel] = (), within: float | None = None) -> BundleModel | None:
        """The plan for inputs of these types and sizes that was made for the nearest sizes.

        known: plans to skip. within: None, or the distance in factors of two that the plan must be below.
        """
        source = self._find(feeds, known, within) if fits(feeds) else None
        self.count(source is not None)
        if source is not None:
            _touch(source.path)
        return source

    def _find(self, feeds: Feeds, known: Sequence[BundleModel] = (), within: float | None = None) -> BundleModel | None:
        shapes, asked = {name: array.shape for name, array in feeds.items()}, {Path(p.path) for p in known}
        exact = self.path_for(feeds)
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
        """Number of plans."""
        return len(self._newest_first())

    def all_but(self, known: Collection[Path]) -> list[tuple[Path, BundleModel]]:
        """All readable plans except `known`, the newest first."""
        paths = [path for path in self._newest_first() if path not in known]
        return [(path, model) for path in paths if (model := self._load(path)) is not None]

    def count(self, found: bool) -> None:
        """Count a lookup."""
        count_lookup("plans", found)
        self.hits, self.misses = self.hits + found, self.misses + (not found)

    def discard(self, feeds: Feeds) -> None:
        """Delete the plan for exactly these types and shapes."""
        discard(self.path_for(feeds))

    def record_failed_attempt(self, feeds: Feeds) -> None:
        """Delete the plan for `feeds`, which was no faster, and record that no process should try again."""
        path = self.path_for(feeds)
        discard(path)
        with suppress(OSError):
            path.with_suffix(FAILED).touch()

    def failed_before(self, feeds: Feeds) -> bool:
        """Whether `record_failed_attempt` was called for `feeds`."""
        return self.path_for(feeds).with_suffix(FAILED).exists()

    def _newest_first(self) -> list[Path]:
        found = [(used, path) for path in self.folder.glob(f"*{SUFFIX}") if (used := _used(path)) is not None]
        return [path for _, path in sorted(found, reverse=True)]

    def store(self, feeds: Feeds, bundle: Bundle) -> None:
        """Store a plan if it is small enough; a failure is logged only.

        A plan is not stored if plugins were registered since the session was opened: its key would be another.
        """
        path = self.path_for(feeds)
        if foreign_state() != self._code:
            return
        weights = [a for v in bundle.variants for a in v.stored.weights.values()]
        nbytes = sum(a.nbytes for a in weights if not (isinstance(a, LazyArray) and a.is_mapped))
        if nbytes > self.cap_bytes // _MAX_SHARE:
            _log.info("a plan of %d MiB is too large for the cache", nbytes >> 20)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            free = free_bytes(path.parent)
            if free is not None and free < _FREE_FACTOR * nbytes:
                _log.info("a plan of %d MiB is not stored: the disk has %d left", nbytes >> 20, free >> 20)
                return
            save_bundle(path, bundle, self.weights, parallel_map)
        except (BundleError, TypeError, OSError) as e:
            _log.info("a plan is not stored: %s", e)
            return
        for old in self._newest_first()[KEPT:]:
            discard(old)
        trim(cache_folder(), self.cap_bytes)

    def delete_all(self, feeds: Feeds) -> None:
        """Delete all plans that serve `feeds`: their outputs overflow."""
        while (plan := self._find(feeds)) is not None:
            path = Path(plan.path)
            discard(path)
            if path.exists():
                return  # a read-only cache

    def drop(self, plan: BundleModel, fault: object) -> None:
        """Delete a plan that cannot be used. fault: reason for the log; None logs nothing."""
        if fault is None:
            discard(Path(plan.path))
        else:
            _drop(Path(plan.path), fault)

    def path_for(self, feeds: Feeds) -> Path:
        """Path of the plan for exactly these types and shapes."""
        types = sorted((name, array.dtype.str, array.shape, *_growth(array)) for name, array in feeds.items())
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
    """Whether plans for such `feeds` may be stored: all are numeric arrays in native byte order, on host or device."""
    return all(
        type(a) in (np.ndarray, DeviceTensor) and a.dtype.isnative and not a.dtype.hasobject for a in feeds.values()
    )


def is_current(program: Program, device: DeviceInfo) -> bool:
    """Whether planning with the tuning database as it is now would give the same `program`."""
    if program.tuning is None or program.tuning.stamp == tuning_stamp():
        return True
    from ....tune.plan_dependencies import holds  # imports kernels, which plans do not need

    return holds(program.tuning, device)


def open_plans(
    model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None
) -> PlanCache | None:
    """The plans of `model`; None if plans cannot be used or the model cannot be read.

    Plans are not used without a cache folder, with tuning, and with settings that show or stop planning.
    """
    options = compiler.options
    shows = knobs.get("OPALITE_STOP_AFTER") is not None or knobs.get("OPALITE_CHECK") or knobs.get("OPALITE_DEBUG")
    kept = usable_folder()
    if kept is None or not knobs.get("OPALITE_PLAN_CACHE") or shows or options.tune != "none":
        return None
    if not isinstance(model, bytes) and not (isinstance(model, str | os.PathLike) and Path(model).is_file()):
        return None  # a pipe can be read only once; loading the model reports other errors
    try:
        # Other systems lock open files, so that the model could not be replaced.
        file = None if isinstance(model, bytes) or os.name != "posix" else ModelFile(Path(model))
        key = plans_key(model_digest(model) if file is None else file.digest(), compiler, edits)
    except (OSError, ModelFormatError):
        return None
    folder = kept / "plans" / key[:2] / key
    data_folder = (
        Path(edits.folder) if edits and edits.folder else None if isinstance(model, bytes) else Path(model).parent
    )
    data = None
    if data_folder is not None and (names := read_names(folder)):
        try:
            data = ExternalDataFiles(data_folder, names)
        except OSError:
            return None  # loading the model reports the missing file
        folder = _folder_for(folder, data)
    return PlanCache(folder, knobs.get("OPALITE_CACHE_MB") << 20, compiler, file, data, data_folder)


def _folder_for(folder: Path, data: ExternalDataFiles) -> Path:
    """Folder of the plans of a model with data files. folder: for the model's own bytes."""
    key = digest(folder.name, data.key)
    return folder.parents[1] / key[:2] / key


def _used(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None


def _growth(array: Any) -> tuple[Any, ...]:
    """The part of the key for a growable tensor, besides dtype and shape."""
    return (array.axis, array.grows, array.narrow) if isinstance(array, GrowableTensor) else ()


def _touch(path: str | os.PathLike[str]) -> None:
    with suppress(OSError):  # a read-only cache is used too
        os.utime(path)


def _drop(path: Path, fault: object) -> None:
    _log.warning("removed plan %s… of the cache: %s; it will be made again", path.stem[:12], fault)
    discard(path)
