"""Shares of a node's devices that its actors hold: a file for each, locked as long as the process lives that has it.

The system lifts a lock however a process ends. Files that nobody has locked are removed by whoever looks next, and the
folder by the last one that gives its share back.
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
_LOOK_S = 0.05


@dataclass(frozen=True)
class Share:
    """device: which of those that were asked for."""

    device: int
    path: Path
    lock: int

    def release(self) -> None:
        """The actor wants it no longer."""
        with contextlib.suppress(OSError), _guarded(self.path.parent):
            self.path.unlink(missing_ok=True)
            os.close(self.lock)


def acquire_share(folder: Path, node: str, devices: int, share: float, patience_s: float) -> Share | None:
    """A share, from above 0 to 1, of the first device of `node` that has so much left; None if within `patience_s` none
    has. Parts that fit none, although Ray's sum over all devices does, are taken of the one that has most left.
    """
    end = time.monotonic() + patience_s
    need = max(1, round(share * _WHOLE))
    while True:
        is_late = time.monotonic() > end
        with _guarded(folder):
            held = _held(folder, node, devices)
            device = next((i for i, n in enumerate(held) if n + need <= _WHOLE), None)
            if device is None and is_late and need < _WHOLE:
                device = min(range(devices), key=lambda i: held[i])
                _log.warning("no device has %g left; actors share one beyond that: ask for a whole part, 1/n", share)
            if device is not None:
                return _made(folder, f"{node}-{device}", need, device)
        if is_late:
            return None
        time.sleep(_LOOK_S)


def _held(folder: Path, node: str, devices: int) -> Sequence[int]:
    """How much of each device is taken. Removes what nobody has any more, of other nodes too."""
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


def _made(folder: Path, name: str, need: int, device: int) -> Share:
    path = next(p for n in count() if not (p := folder / f"{name}-{n}-{need}").exists())
    lock = try_lock(path)
    assert lock is not None, "made under the guard"
    return Share(device, path, lock)


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Inside, nobody else looks at the files; an empty folder goes."""
    guard = folder / _GUARD
    while True:
        with contextlib.suppress(FileNotFoundError):  # the folder has just gone
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
