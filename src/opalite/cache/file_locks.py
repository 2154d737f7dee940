"""Lock files of folders that one process uses at a time; the system releases them when the process ends."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def remove_unused(path: Path) -> bool:
    """Remove the folder `path` unless a process has locked it; returns whether it is removed."""
    try:
        descriptor = try_lock(path.with_name(f"{path.name}.lock"))
    except (OSError, ImportError):
        return False
    if descriptor is None:
        return False
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)  # keep the file: another process may be locking it
    return not path.exists()


def try_lock(path: Path) -> int | None:
    """Lock the file `path`; returns its descriptor, None if another process has the lock."""
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
