"""Folders that one process has at a time: a lock says whose each is, which the system lifts however a process ends."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def remove_unused(path: Path) -> bool:
    """Remove the folder `path` unless a process has it; whether it is gone."""
    try:
        descriptor = try_lock(path.with_name(f"{path.name}.lock"))
    except (OSError, ImportError):
        return False
    if descriptor is None:
        return False
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)  # the file stays: another process may be about to lock it
    return not path.exists()


def try_lock(path: Path) -> int | None:
    """A descriptor of the file `path`, locked; None if another process has the lock."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
