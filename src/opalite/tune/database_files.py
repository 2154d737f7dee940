"""File locations of tuning results: the user's database in the cache folder, and shipped files by device family.

Light to import: each session asks here first, and most find nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..cache.cache_folder import usable_folder
from ..ir.device.device_info import DeviceInfo

SHIPPED = Path(__file__).parent / "defaults"


def database_path() -> Path | None:
    """The user's database; None if everything is kept in memory (see kept_folder)."""
    kept = usable_folder()
    return kept / "tuning.sqlite" if kept is not None else None


def tuning_stamp() -> str:
    """A stamp that changes with every entry of the user's database; shipped files count as package files."""
    path = database_path()
    with suppress(OSError):
        if path is not None:
            found = path.stat()
            return f"{found.st_mtime_ns} {found.st_size}"
    return ""


def shipped_layers(device: DeviceInfo) -> Iterable[tuple[str, Path]]:
    """(name, file) of the shipped entries for `device`, the most specific first: adreno-6xx, then adreno."""
    names = [f"{device.family}-{device.generation}"] if device.generation else []
    for name in (*names, device.family):
        path = SHIPPED / f"{name}.json"
        if path.is_file():
            yield name, path


def has_tuning(device: DeviceInfo) -> bool:
    """Whether there may be tuning results for `device`."""
    path = database_path()
    return (path is not None and path.is_file()) or any(True for _ in shipped_layers(device))
