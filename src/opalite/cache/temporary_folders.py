"""Checks of writable folders, and temporary folders for PoCL.

A machine may have no writable home, a read-only file system, a full disk, or noexec mounts, from which PoCL cannot load
its kernels. Needs no OpenCL.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs

from .. import knobs
from ..errors import DeviceError

ROOM = 32 << 20
"""Free bytes that PoCL's folder needs. A program takes some hundred KiB, a megakernel some MiB."""


def write_fault(folder: Path, nbytes: int = 0) -> str | None:
    """Reason why `nbytes` cannot be written to `folder`, which is made if missing; None if they can.

    Makes nothing below a missing home folder.
    """
    if not folder.is_absolute() or _lacks_home(folder):
        return "this user has no home folder"
    probe = folder / f".tmp-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
    except OSError as e:
        return e.strerror or str(e)
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    free = free_bytes(folder)
    return None if free is None or free >= nbytes else f"only {free >> 20} MiB are free"


def _lacks_home(folder: Path) -> bool:
    """Return whether `folder` is below a home folder that does not exist."""
    home = os.path.expanduser("~")
    return os.path.isabs(home) and folder.is_relative_to(home) and not os.path.isdir(home)


def user_folder(name: str) -> Path:
    """The user's cache folder of program `name`; not absolute for a user without home."""
    try:
        return Path(platformdirs.user_cache_dir(name, appauthor=False))
    except RuntimeError:  # platformdirs without home folder
        return Path("~") / ".cache" / name


def driver_fault(folder: Path) -> str | None:
    """Reason why PoCL cannot use `folder`, which is made if missing; None if it can."""
    fault = write_fault(folder, ROOM)
    if fault is None and hasattr(os, "statvfs") and os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        return "it is mounted with noexec"
    return fault


def free_bytes(folder: Path | str) -> int | None:
    """Free bytes of the disk of `folder` for this user; None if the system does not report them."""
    if not hasattr(os, "statvfs"):
        return None
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def make_temporary(prefix: str) -> Path:
    """Make a folder that PoCL can use; the caller removes it. Raises DeviceError if there is none."""
    faults = []
    for parent in _parents():
        fault = driver_fault(parent) if parent.is_dir() else "it does not exist"
        if fault is None:
            return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        faults.append(f"{parent}: {fault}")
    raise DeviceError(
        f"PoCL, which runs kernels on the CPU, needs a folder where it can write {ROOM >> 20} MiB and execute them, "
        f"and there is none ({'; '.join(faults)}): free space, or set TMPDIR to such a folder"
    )


def _parents() -> Iterator[Path]:
    """Candidates for temporary folders: environment, system, memory, user cache, current folder."""
    if os.name != "posix":
        yield Path(tempfile.gettempdir())
        return
    chosen = [text for name in ("TMPDIR", "TEMP", "TMP") if (text := knobs.foreign(name))]
    own = user_folder("opalite").parent
    places = [Path(name) for name in (*chosen, "/tmp", "/var/tmp", "/dev/shm")]
    places += [own] if own.is_absolute() else []
    yield from dict.fromkeys(path.absolute() for path in (*places, Path()))
