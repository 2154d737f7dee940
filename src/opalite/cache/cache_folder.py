"""The cache folder: its path, its entries, and eviction above its size limit.

    programs/AB/<key>.bin     program binaries (binary_store.py)
    plans/AB/<key>/….opal     plans of .onnx models (run/model/plans/plan_store.py)
    plans/AB/<key>/states/….opal     plans of runs on caches (the same)
    plans/AB/<key>/generic/….opal    plans of generic programs (the same)
    plans/AB/<key>/segments/….opal   plans of one of several segments (the same)
    plans/AB/<key>/….pending  of which the optimized programs are not complete (run/model/plans/plan_files.py)
    plans/AB/<key>/weights/….weight  large constants of those plans (plan/weights/weight_files.py)
    plans/AB/<key>/files.json        names of the model's data files (run/model/plans/external_data_files.py)
    contents/<key>.json       digests of data files (the same)
    plans/AB/<key>/….failed   sizes without gain by a specialized plan (run/model/background/respecialize.py)
    bundles/AB/<key>.safetensors     re-emitted programs of bundles (run/model/bundle_reemitter.py)
    precision/AB/<key>.json   decision of precision 'auto' (run/precision/precision_choice.py)
    pocl/<number>/…           PoCL's files, a folder for each running process (pocl/program_folder.py)
    failed/<key>.cl           sources that did not compile (cl/programs/compile_source.py)
    facts.json                results of probe builds by device (cl/device/query_device_info.py)
    counts.txt                hits and misses of all caches (hit_counters.py)

Needs no OpenCL.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from .. import knobs
from ..lazy_dataclass import dataclass
from .file_locks import remove_unused
from .temporary_folders import user_folder, write_fault

_log = logging.getLogger(__name__)

_FRESH_S = 3600  # younger temporary files may be in use


def cache_folder() -> Path:
    """OPALITE_CACHE_DIR, else the user's cache folder. It need not exist yet."""
    chosen = knobs.get("OPALITE_CACHE_DIR")
    return _expanded(Path(chosen)) if chosen else user_folder("opalite")


def _expanded(path: Path) -> Path:
    with suppress(RuntimeError):  # no home: writers report it
        path = path.expanduser()
    return path if path.parts[:1] == ("~",) else path.absolute()


def usable_folder() -> Path | None:
    """The cache folder if it is usable; None keeps everything in memory.

    None with OPALITE_CACHE=0, without a home folder, and for a folder that is neither writable nor readable. A folder
    that cannot be written is logged once per process, with advice.
    """
    return _if_usable(cache_folder()) if knobs.get("OPALITE_CACHE") else None


def is_writable(folder: Path) -> bool:
    """Return whether `folder`, a `usable_folder`, is writable."""
    return _write_fault(folder) is None


_write_fault = cache(write_fault)  # once per process


@cache
def _if_usable(folder: Path) -> Path | None:
    fault = _write_fault(folder)
    if fault is None:
        return folder
    is_filled = folder.is_absolute() and os.access(folder, os.R_OK | os.X_OK)
    _log.warning(
        "the cache folder %s cannot be written (%s): %s; to keep programs and plans for the next process, set "
        "OPALITE_CACHE_DIR to a folder that can be written",
        folder,
        fault,
        "what it holds is used, and nothing is added" if is_filled else "everything is kept in memory only",
    )
    return folder if is_filled else None


@dataclass(frozen=True)
class CacheEntry:
    """A unit of eviction: a binary, a plan, a large constant of plans, PoCL's folder of one process..."""

    path: Path
    kind: str  # program, plan, weight, data, vain, bundle, choice, pocl or failed
    nbytes: int
    used: float  # seconds since the epoch


_FILES = (
    ("programs/*/*.bin", "program"),
    ("plans/*/*/*.opal", "plan"),
    ("plans/*/*/states/*.opal", "plan"),
    ("plans/*/*/generic/*.opal", "plan"),
    ("plans/*/*/segments/*.opal", "plan"),
    ("plans/*/*/weights/*.weight", "weight"),
    ("plans/*/*/files.json", "data"),
    ("contents/*.json", "data"),
    ("plans/*/*/*.failed", "vain"),
    ("plans/*/*/*.pending", "vain"),
    ("plans/*/*/segments/*.pending", "vain"),
    ("bundles/*/*.safetensors", "bundle"),
    ("precision/*/*.json", "choice"),
    ("failed/*.cl", "failed"),
)


def cache_entries(folder: Path) -> Iterator[CacheEntry]:
    """Yield all entries of the cache `folder`; files that vanish are skipped."""
    for pattern, kind in _FILES:
        for path in _matches(folder, pattern):
            if (stat := _stat(path)) is not None:
                yield CacheEntry(path, kind, stat.st_size, stat.st_mtime)
    for path in _matches(folder, "pocl/*/"):
        inside = (Path(root, name) for root, _, names in os.walk(path) for name in names)
        files = [s for f in inside if (s := _stat(f)) is not None and S_ISREG(s.st_mode)]
        if files:
            yield CacheEntry(path, "pocl", sum(s.st_size for s in files), max(s.st_mtime for s in files))


def trim(folder: Path, cap_bytes: int) -> int:
    """Remove least recently used entries until 90 % of the cap is left, if it is exceeded; returns the bytes freed.

    Keeps PoCL's folders of running processes. Temporary files are removed after an hour.
    """
    now = time.time()
    for pattern in (
        ".tmp-*",
        "programs/*/.tmp-*",
        "plans/*/*/.*",
        "plans/*/*/*/.*",
        "contents/.*",
        "bundles/*/.*",
        "precision/*/.tmp-*",
    ):
        for path in _matches(folder, pattern):
            if (stat := _stat(path)) is not None and now - stat.st_mtime > _FRESH_S:
                discard(path)
    found = sorted(cache_entries(folder), key=lambda u: u.used)
    total = sum(u.nbytes for u in found)
    freed = 0
    if total <= cap_bytes:
        return 0
    for entry in found:
        if total - freed <= cap_bytes * 9 // 10:
            break
        freed += _remove(entry)
    return freed


def clear(folder: Path) -> int:
    """Remove all entries but PoCL's folders of running processes; returns the bytes freed."""
    return sum(map(_remove, list(cache_entries(folder))))


def _remove(entry: CacheEntry) -> int:
    """Remove an entry unless it is in use; returns the bytes freed."""
    if entry.kind == "pocl" and not remove_unused(entry.path):
        return 0
    discard(entry.path)
    return entry.nbytes


def _matches(folder: Path, pattern: str) -> Iterator[Path]:
    """Paths that match. Unlike Path.glob, ignores folders that another process removes meanwhile."""
    for name in glob.iglob(pattern, root_dir=folder):
        yield folder / name


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def write_json(path: Path, contents: Any) -> OSError | None:
    """Write a JSON file whole or not at all, and its folder if that is missing; returns the error, None without one."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(contents), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as e:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return e
    return None


def discard(path: Path) -> None:
    """Remove an entry, and its folder if that becomes empty."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):  # open in another process (Windows): the next trim removes it
        path.unlink(missing_ok=True)
        if path.suffix in (".opal", ".weight"):
            path.parent.rmdir()  # fails unless it is empty
