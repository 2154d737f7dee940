"""Folders in which this process can write, and temporary ones in which PoCL can work.

A machine may have no writable home, a read-only tree, a full disk, or folders from which nothing may be executed (PoCL
loads the kernels that it wrote as libraries). Needs no OpenCL.
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
"""Bytes that must be free where PoCL writes. A program takes some hundred KiB, a step loop some MiB."""


def write_fault(folder: Path, room: int = 0) -> str | None:
    """Why `room` bytes cannot be written to `folder`, which is made if need be; None if they can.

    A home folder that does not exist is not made, nor anything in it.
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
    return None if free is None or free >= room else f"no room: {free >> 20} MiB are free"


def _lacks_home(folder: Path) -> bool:
    """Whether `folder` lies in the user's home folder, and there is none."""
    home = os.path.expanduser("~")
    return os.path.isabs(home) and folder.is_relative_to(home) and not os.path.isdir(home)


def user_folder(name: str) -> Path:
    """The user's cache folder of program `name`; not absolute for a user who has no home."""
    try:
        return Path(platformdirs.user_cache_dir(name, appauthor=False))
    except RuntimeError:  # what platformdirs raises then, or gives a path with ~
        return Path("~") / ".cache" / name


def driver_fault(folder: Path) -> str | None:
    """Why PoCL cannot work in `folder`, which is made if need be; None if it can."""
    fault = write_fault(folder, ROOM)
    if fault is None and hasattr(os, "statvfs") and os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        return "nothing there may be executed (mounted with noexec)"
    return fault


def free_bytes(folder: Path | str) -> int | None:
    """Bytes that this user may still write to the disk of `folder`; None where the system does not tell."""
    if not hasattr(os, "statvfs"):
        return None
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def make_temporary(prefix: str) -> Path:
    """A new folder in which PoCL can work, which the caller removes. DeviceError if there is no place for one."""
    faults = []
    for parent in _parents():
        fault = driver_fault(parent) if parent.is_dir() else "it does not exist"
        if fault is None:
            return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        faults.append(f"{parent}: {fault}")
    raise DeviceError(
        f"PoCL, which runs kernels on the CPU, needs a folder where it can write {ROOM >> 20} MiB and execute them, "
        f"and there is none ({'; '.join(faults)}): make room, or set TMPDIR to such a folder"
    )


def _parents() -> Iterator[Path]:
    """Where temporary folders may go: the user's choice, the system's, memory, the user's cache, the current folder."""
    if os.name != "posix":
        yield Path(tempfile.gettempdir())
        return
    chosen = [text for name in ("TMPDIR", "TEMP", "TMP") if (text := knobs.foreign(name))]
    own = user_folder("opalite").parent
    places = [Path(name) for name in (*chosen, "/tmp", "/var/tmp", "/dev/shm")]
    places += [own] if own.is_absolute() else []
    yield from dict.fromkeys(path.absolute() for path in (*places, Path()))
