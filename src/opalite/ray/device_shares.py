"""Shares of a node's devices, each a lock file that the actor's process keeps locked.

The system releases the lock when the process ends, in any way. The next actor removes unlocked files. The last actor
that releases a share removes the folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ..cache.file_locks import try_lock

_log = logging.getLogger("opalite.ray")
_WHOLE = 10_000  # Ray counts resources in ten-thousandths
_GUARD = "guard"
_POLL_S = 0.05


@dataclass(frozen=True)
class Share:
    """A share of a device. device: the index of the device on its node."""

    device: int
    path: Path
    lock: int

    def release(self) -> None:
        """Release the share and remove its file."""
        with contextlib.suppress(OSError), _guarded(self.path.parent):
            self.path.unlink(missing_ok=True)
            os.close(self.lock)


def acquire_share(folder: Path, node: str, devices: int, share: float, timeout_s: float) -> Share | None:
    """Acquire `share` (0 < share <= 1) of the first device of `node` with enough left; None after `timeout_s` seconds.

    Ray only checks the sum over all devices. A fraction that fits no single device is taken of the least used device.
    """
    end = time.monotonic() + timeout_s
    need = max(1, round(share * _WHOLE))
    while True:
        is_late = time.monotonic() > end
        with _guarded(folder):
            held = _used_parts(folder, node, devices)
            device = next((i for i, n in enumerate(held) if n + need <= _WHOLE), None)
            if device is None and is_late and need < _WHOLE:
                device = min(range(devices), key=lambda i: held[i])
                _log.warning("no device has %g left, so a device is overcommitted: request fractions 1/n", share)
            if device is not None:
                return _create_share(folder, f"{node}-{device}", need, device)
        if is_late:
            return None
        time.sleep(_POLL_S)


def _used_parts(folder: Path, node: str, devices: int) -> Sequence[int]:
    """The used part of each device, in units of 1 / _WHOLE. Removes unlocked files, of other nodes too."""
    held = [0] * devices
    for path in folder.iterdir():
        if path.name == _GUARD:
            continue
        lock = try_lock(path)
        if lock is not None:
            path.unlink(missing_ok=True)
            os.close(lock)
            continue
        owner, device, _, part = path.name.rsplit("-", 3)
        if owner == node and int(device) < devices:
            held[int(device)] += int(part)
    return held


def _create_share(folder: Path, name: str, need: int, device: int) -> Share:
    path = next(p for n in count() if not (p := folder / f"{name}-{n}-{need}").exists())
    lock = try_lock(path)
    assert lock is not None, "created under the guard"
    return Share(device, path, lock)


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Hold the folder's guard lock inside the block; removes an empty folder at the end."""
    guard = folder / _GUARD
    while True:
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the folder
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = try_lock(guard)
            if lock is not None:
                if guard.exists() and os.path.samestat(os.fstat(lock), guard.stat()):
                    break
                os.close(lock)
        time.sleep(0.001)
    try:
        yield
    finally:
        if [p.name for p in folder.iterdir()] == [_GUARD]:
            guard.unlink()
            folder.rmdir()
        os.close(lock)
