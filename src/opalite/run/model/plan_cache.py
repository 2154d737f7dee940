"""Plans of .onnx models kept in the cache folder, so that a second start needs neither onnx nor a pass.

A plan is a bundle (plan/bundle.py) at plans/AB/KEY/SHAPES.opal. KEY names everything that decides a plan but the
shapes: the model's bytes, the device with its driver, the options, the tuning database, this package's files and the
versions of onnx and NumPy. So nothing is ever out of date; what is damaged is removed with one log line and made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ... import knobs
from ...cache.folder import cache_folder, discard, kept_folder, trim
from ...cache.keys import digest
from ...cache.stats import note
from ...cl.tensor import DeviceTensor
from ...errors import BundleError
from ...ir.edits import ModelEdits
from ...plan.bundle import SUFFIX, Bundle, save_bundle
from ...tune.files import database_path
from .bundle_model import BundleModel
from .compiler import Compiler

_log = logging.getLogger(__name__)
KEPT = 4  # plans of one model: for different shapes
_LARGEST = 4  # a plan takes at most this part (one over) of the cache folder's cap

Feeds = Mapping[str, Any]


class PlanCache:
    """The plans of one model for one device and set of options."""

    def __init__(self, folder: Path, cap_bytes: int, contents: str, compiler: Compiler) -> None:
        """`contents`: the digest of the model's bytes, which `folder` is named for. compiler: of the plans' runs."""
        self._compiler = compiler
        self.contents = contents
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.hits = 0
        self.misses = 0

    def newest(self) -> BundleModel | None:
        """The plan used last, which tells what the model's inputs and outputs are; None is a miss."""
        found = [(used, path) for path in self.folder.glob(f"*{SUFFIX}") if (used := _used(path)) is not None]
        source = next((s for _, path in sorted(found, reverse=True) if (s := self._load(path)) is not None), None)
        if source is None:
            self.misses += 1
            note("plans", False)
        return source

    def find(self, feeds: Feeds) -> BundleModel | None:
        """The plan for inputs of these types, ready to run."""
        source = self._load(self._path(feeds)) if fits(feeds) else None
        note("plans", source is not None)
        if source is None:
            self.misses += 1
        else:
            self.hits += 1
            with suppress(OSError):  # a read-only cache serves all the same
                os.utime(self._path(feeds))
        return source

    def keep(self, feeds: Feeds, bundle: Bundle) -> None:
        """Keep a plan, if it is small enough; failing to costs no more than a log line."""
        path = self._path(feeds)
        nbytes = sum(a.nbytes for v in bundle.variants for a in v.program.weights.values())
        if nbytes > self.cap_bytes // _LARGEST:
            _log.info("a plan of %d MiB is too large for the cache", nbytes >> 20)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_bundle(path, bundle)
        except (BundleError, TypeError, OSError) as e:
            _log.info("a plan is not kept: %s", e)
            return
        found = sorted((used, p) for p in self.folder.glob(f"*{SUFFIX}") if (used := _used(p)) is not None)
        for _, old in found[:-KEPT]:
            discard(old)
        trim(cache_folder(), self.cap_bytes)

    def forget(self, feeds: Feeds) -> None:
        """Remove the plan for `feeds`, if one is kept: what it computes is not what the session gives."""
        discard(self._path(feeds))

    def drop(self, feeds: Feeds, fault: object) -> None:
        """Remove the plan for `feeds`, which cannot be used."""
        _drop(self._path(feeds), fault)

    def _path(self, feeds: Feeds) -> Path:
        types = sorted((name, array.dtype.str, array.shape) for name, array in feeds.items())
        return self.folder / f"{digest(repr(types))[:24]}{SUFFIX}"

    def _load(self, path: Path) -> BundleModel | None:
        if not path.is_file():
            return None
        try:
            return BundleModel(path, self._compiler)
        except BundleError as e:
            _drop(path, e)
            return None


def fits(feeds: Feeds) -> bool:
    """Whether `feeds` are plain numeric arrays, in host or device memory, the only ones that plans are kept for."""
    return all(
        type(a) in (np.ndarray, DeviceTensor) and a.dtype.isnative and not a.dtype.hasobject for a in feeds.values()
    )


def open_plans(
    model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None
) -> PlanCache | None:
    """The plans of `model`; None where none are kept, or the model cannot be read.

    None are kept without a cache folder, while a session searches (`tune`), and under the settings that look into
    planning, which would have nothing to show.
    """
    rt, options = compiler.rt, compiler.options
    looks = knobs.get("OPALITE_STOP_AFTER") is not None or knobs.get("OPALITE_CHECK") or knobs.get("OPALITE_DEBUG")
    kept = kept_folder()
    if kept is None or not knobs.get("OPALITE_PLANS") or looks or options.tune != "none":
        return None
    if not isinstance(model, bytes) and not (isinstance(model, str | os.PathLike) and Path(model).is_file()):
        return None  # a pipe can be read once; of anything else whoever loads it says what is wrong
    try:
        contents = model_digest(model)
    except OSError:
        return None
    settings = [knobs.get(name) for name in ("OPALITE_PLANNER", "OPALITE_NESTING")]
    key = digest(
        contents,
        edits.digest() if edits else "",
        rt.fingerprint,
        rt.info.to_json(),
        options.precision if isinstance(options.precision, str) else options.precision.to_json(),
        json.dumps([options.memory, options.strict, *settings, sorted(knobs.get("OPALITE_WITHOUT"))]),
        _tuning_state(),
        package_state(),
    )
    return PlanCache(kept / "plans" / key[:2] / key, knobs.get("OPALITE_CACHE_MB") << 20, contents, compiler)


def file_stamp(model: str | os.PathLike[str] | bytes) -> Any:
    """Changes when the model's file does; None for bytes, and for a file that is not there."""
    if not isinstance(model, bytes):
        with suppress(OSError):
            found = os.stat(model)
            return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def model_digest(model: str | os.PathLike[str] | bytes) -> str:
    """Digest of the bytes of a model, or of its file. OSError if that cannot be read."""
    if isinstance(model, bytes):
        return hashlib.blake2b(model).hexdigest()
    with open(model, "rb") as f:
        return hashlib.file_digest(f, hashlib.blake2b).hexdigest()


def _tuning_state() -> str:
    """Changes with every entry of the tuning database; what the package ships counts among its files."""
    path = database_path()
    with suppress(OSError):
        if path is not None:
            found = path.stat()
            return f"{found.st_mtime_ns} {found.st_size}"
    return ""


@cache
def package_state() -> str:
    """Names this package's files as they are now, and the packages that imports and folded constants depend on."""
    root = Path(knobs.__file__).parent
    parts = [f"{name} {_version(name)}" for name in ("opalite", "onnx", "numpy")]
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n != "__pycache__")
        for name in sorted(files):
            with suppress(OSError):
                found = os.stat(os.path.join(folder, name))
                parts.append(f"{folder}/{name} {found.st_mtime_ns} {found.st_size}")
    return digest(*parts)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _used(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None


def _drop(path: Path, fault: object) -> None:
    _log.warning("removed plan %s… of the cache: %s; it will be made again", path.stem[:12], fault)
    discard(path)
