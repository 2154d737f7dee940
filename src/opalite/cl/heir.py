"""Heir: a process that compiled for another one and goes on with the general programs for a moment once that has ended.

A process that ends with its first result leaves most general programs unbuilt, and the next model would wait for a
compiler to start. The process that compiles is ready and has begun: it is left a list of what is missing, its will,
stores that within LASTS_S, and ends. There is one for a device and a cache folder; a file tells which,
so that a process which needs such a program meanwhile waits for that rather than start a compiler of its own.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..cache.store import BinaryStore

LASTS_S = 10
"""Seconds after which the system ends it, whatever it is doing."""

WAITS_S = 1.5
"""That a process waits at most for a program that it builds."""

_LOOKS_S = 0.004
WILL = "\0will"
"""In place of a request's options: its text is the path of a file that `write_will` has written."""

Entry = tuple[str, str, str]
"""Key in the store, options and source."""


class Heir:
    """The heir of a device, seen from other processes: the one whose number a file holds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_alive(self) -> bool:
        """Whether there is one at work."""
        try:
            pid, age = int(self.path.read_text()), time.time() - self.path.stat().st_mtime
            os.kill(pid, 0)
        except (OSError, ValueError, OverflowError):
            return False
        return abs(age) < LASTS_S

    def claim(self, pid: int) -> bool:
        """Let the process `pid` be it; False if there is one, or the folder cannot be written."""
        if self.is_alive:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(str(pid))
        except OSError:
            return False
        return True

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Wait until `is_done`, as long as there is an heir at work, and not for long."""
        end = time.monotonic() + WAITS_S
        while not is_done() and self.is_alive and time.monotonic() < end:
            time.sleep(_LOOKS_S)


def write_will(path: Path, store: BinaryStore, heir: Heir, programs: Sequence[Entry]) -> None:
    """Write what `fulfil` reads. OSError if that is not possible."""
    will = {"store": str(store.folder), "cap": store.cap_bytes, "heir": str(heir.path), "programs": programs}
    path.write_text(json.dumps(will), encoding="utf-8")


def fulfil(path: Path, build: Callable[[str, str], bytes], built: Mapping[tuple[str, str], bytes]) -> None:
    """Build what a will lists and nobody has stored yet, by `build(options, text)`, and remove the will's folder.

    built: what is there already. It ends where the cache folder has gone.
    """
    import shutil

    if hasattr(signal, "alarm"):
        signal.alarm(LASTS_S)
    will = json.loads(path.read_text(encoding="utf-8"))
    store = BinaryStore(Path(will["store"]), will["cap"])
    os.chdir("/")
    try:
        for key, options, text in will["programs"]:
            if not store.folder.is_dir():
                break
            if store.path(key).exists():
                continue
            binary = built.get((options, text)) or build(options, text)
            if binary and store.folder.is_dir():
                store.put(key, binary)
    finally:
        with suppress(OSError):
            Path(will["heir"]).unlink()
        shutil.rmtree(path.parent, ignore_errors=True)
