"""PlanFiles: the plans of one model in the cache folder, as files.

A plan is a bundle (plan/bundle/bundle.py) of one program at plans/AB/KEY/SHAPES.opal; plans of runs on KV caches and of
generic programs are in the folders `states` and `generic` below. KEY is a digest of everything that decides a plan
except the shapes (plan_key.py): the model's bytes and data files (external_data_files.py), device and driver, options,
this package's files, plugins, and the versions of onnx and NumPy. So no plan is ever outdated by its key. Large weights
are stored once for all plans of a model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .... import knobs
from ....cache.cache_folder import cache_folder, discard, trim, usable_folder
from ....cache.cache_keys import digest
from ....cache.temporary_folders import free_bytes
from ....cl.memory.device_tensor import DeviceTensor
from ....cl.programs.build_parallelism import parallel_map
from ....errors import BundleError, ModelFormatError
from ....ir.constants.lazy_array import LazyArray
from ....ir.constants.model_file import ModelFile
from ....ir.growable_tensor import GrowableTensor
from ....ir.model_edits import ModelEdits
from ....ir.plugins import foreign_state
from ....plan.bundle.bundle import SUFFIX, Bundle
from ....plan.bundle.write_bundle import save_bundle
from ....plan.weights.weight_files import WeightFiles
from ..background.graph_compiler import Compiler
from ..route import NO_CONTENTS, Contents
from .external_data_files import ExternalDataFiles, model_file_digest, read_names, store_names
from .plan_key import model_digest, plans_key

if TYPE_CHECKING:
    from ..imported_model import ImportedModel

_log = logging.getLogger(__name__)
KEPT = 4  # plans of one model: for different shapes
FAILED = ".failed"
"""Suffix of an empty file in place of a plan for recurring sizes that was no faster than the one in use."""

STATES = "states"
"""Folder of plans of runs on KV caches, in the folder of the model's plans."""

PARTS = "segments"
"""Folder of plans of single segments, in the folder of the model's plans."""

PARTS_KEPT = 32  # plans of segments of one model

GENERIC = "generic"
"""Folder of plans of generic programs, in the folder of the model's plans."""

PENDING = ".pending"
"""Suffix of a file in place of a plan while runs use generic programs; it holds the number of the process.

A file of a process that has ended says that the model recurs and that its optimized programs are not complete.
"""

_MAX_SHARE = 2  # the largest plan is one half of the cache folder's limit
_FREE_FACTOR = 4  # free bytes on the disk needed for each byte of a plan

Feeds = Mapping[str, Any]


class PlanFiles:
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
        self.folder, self.cap_bytes, self.compiler, self.file = folder, cap_bytes, compiler, file
        self._data, self._data_folder = data, data_folder
        self._code = foreign_state()

    @classmethod
    def open(
        cls, model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None
    ) -> Self | None:
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
            key = plans_key(model_digest(model) if file is None else model_file_digest(file), compiler, edits)
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
        return cls(folder, knobs.get("OPALITE_CACHE_MB") << 20, compiler, file, data, data_folder)

    @property
    def weights(self) -> WeightFiles:
        """The files of large weights, which all plans of the model share."""
        return WeightFiles(self.folder / "weights")

    def resolve_data_files(self, imported: ImportedModel) -> str:
        """The reason why plans of the imported model may not be stored and found; '' if they may.

        Plans of a model with data files are keyed by the contents of those. ModelFormatError if the files have changed
        since this was made.
        """
        if imported.draws:
            return "the model draws random numbers"
        if not imported.data_files:
            return ""
        if self._data is not None:
            self._data.check()
            return ""
        if self._data_folder is None:
            return "the model is given as bytes and has data files"
        try:
            data = ExternalDataFiles(self._data_folder, list(imported.data_files))
        except OSError as e:
            return f"a data file cannot be read ({e})"
        if not all(file.is_in_place for file in imported.data_files.values()):
            return "a data file has changed while the model was imported"
        store_names(self.folder, data.locations)
        self._data, self.folder = data, _folder_for(self.folder, data)
        return ""

    def newest_first(self, kind: str = "") -> list[Path]:
        """Paths of the plans of a kind (STATES, GENERIC or ''), those that were used last first."""
        found = [(used, path) for path in _ending(self.folder / kind, SUFFIX) if (used := _used(path)) is not None]
        return [path for _, path in sorted(found, reverse=True)]

    def path_for(self, feeds: Feeds, tier: str = "optimized", contents: Contents = NO_CONTENTS) -> Path:
        """Path of the plan for exactly these types and shapes, and for these contents of some inputs."""
        types = sorted((name, array.dtype.str, array.shape, *_growth(array)) for name, array in feeds.items())
        key = digest(repr(types), *(f"{name} {data.hex()}" for name, data in sorted(contents)))
        return self.folder / kind_of(feeds, tier) / f"{key[:24]}{SUFFIX}"

    def path_for_part(self, identity: str) -> Path:
        """Path of the plan of a segment with that identity."""
        return self.folder / PARTS / f"{digest(identity)[:24]}{SUFFIX}"

    def store(self, path: Path, bundle: Bundle) -> None:
        """Store a plan if it is small enough; a failure is logged only.

        A plan is not stored if plugins were registered since the session was opened: its key would be another.
        """
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
        kind = "" if path.parent == self.folder else path.parent.name
        for old in self.newest_first(kind)[PARTS_KEPT if kind == PARTS else KEPT :]:
            discard(old)
        trim(cache_folder(), self.cap_bytes)

    def mark_pending(self, plan: Path) -> None:
        """Record that runs use generic programs until those of the optimized plan with that path are built."""
        path = plan.with_suffix(PENDING)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(os.getpid()))

    def end_pending(self, plan: Path) -> None:
        """Record that the programs of an optimized plan are built: the generic plan is of no more use."""
        path = plan.with_suffix(PENDING)
        if path.exists():
            discard(path)
            discard(plan.parent / GENERIC / plan.name)

    @property
    def has_pending(self) -> bool:
        """Whether a process that has ended ran the model by generic programs, and left others unbuilt."""
        files = [*_ending(self.folder, PENDING), *_ending(self.folder / PARTS, PENDING)]
        return any(_has_ended(path) for path in files)

    def record_failed_attempt(self, feeds: Feeds) -> None:
        """Delete the plan for `feeds`, which was no faster, and record that no process should try again."""
        path = self.path_for(feeds)
        discard(path)
        with suppress(OSError):
            path.with_suffix(FAILED).touch()

    def failed_before(self, feeds: Feeds) -> bool:
        """Whether `record_failed_attempt` was called for `feeds`."""
        return self.path_for(feeds).with_suffix(FAILED).exists()


def fits(feeds: Feeds) -> bool:
    """Whether plans for such `feeds`, apart from caches, may be stored: all are numeric arrays in native byte order."""
    return all(
        isinstance(a, GrowableTensor)
        or (type(a) in (np.ndarray, DeviceTensor) and a.dtype.isnative and not a.dtype.hasobject)
        for a in feeds.values()
    )


def types_alone(feeds: Feeds) -> dict[str, Any]:
    """Arrays of zeros of the same types, which take no memory."""
    return {n: np.broadcast_to(np.zeros((), a.dtype), a.shape) for n, a in feeds.items()}


def kind_of(feeds: Feeds, tier: str = "optimized") -> str:
    """The folder of plans for such `feeds` in the folder of the model's plans."""
    return STATES if has_caches(feeds) else GENERIC if tier == "generic" else ""


def has_caches(feeds: Feeds) -> bool:
    """Whether KV caches are among the inputs."""
    return any(isinstance(a, GrowableTensor) for a in feeds.values())


def _folder_for(folder: Path, data: ExternalDataFiles) -> Path:
    """Folder of the plans of a model with data files. folder: for the model's own bytes."""
    key = digest(folder.name, data.key)
    return folder.parents[1] / key[:2] / key


def _ending(folder: Path, suffix: str) -> list[Path]:
    """Paths of the files with a suffix in a folder; a glob would compile a pattern in each start."""
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(suffix)]
    except OSError:
        return []


def _has_ended(pending: Path) -> bool:
    """Whether the process that wrote a file has ended; a running one builds its programs itself."""
    try:
        pid = int(pending.read_text())
        if os.name == "posix":
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except (OSError, ValueError):
        return False
    return os.name != "posix" and pid != os.getpid()


def _used(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None


def _growth(array: Any) -> tuple[Any, ...]:
    """The part of the key for a growable tensor, in addition to dtype and shape."""
    return (array.axis, array.grows, array.narrow) if isinstance(array, GrowableTensor) else ()
