"""Heir: a process that compiled for another one and goes on with the general programs for a moment once that has ended.

A process that ends with its first result leaves most general programs unbuilt, and the next model would wait for a
compiler to start. The process that compiles is ready and has begun: it is left a list of what is missing, its will,
stores that within LASTS_S, and ends. There is one for a device and a cache folder; a file tells which,
so that a process which needs such a program meanwhile waits for that rather than start a compiler of its own, and
writes beside it what should come first.
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
    """The heir of a device, seen from other processes: the one whose number a file holds, and what it builds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_alive(self) -> bool:
        """Whether there is one at work."""
        return self._builds() is not None

    def claim(self, pid: int, keys: Sequence[str]) -> bool:
        """Let the process `pid` be it and build `keys`; False if there is one, or the folder cannot be written."""
        if self.is_alive:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._wishes.unlink(missing_ok=True)
            self.path.write_text("\n".join((str(pid), *keys)))
        except OSError:
            return False
        return True

    def wait(self, keys: Sequence[str], is_there: Callable[[str], bool]) -> None:
        """Wait until what it builds of `keys`, from now on before all else, is there, but not for long, and only as
        long as it works."""
        wanted = [key for key in keys if key in (self._builds() or ())]
        if not wanted:
            return
        with suppress(OSError), self._wishes.open("a") as f:
            f.write("".join(f"{key}\n" for key in wanted))
        end = time.monotonic() + WAITS_S
        while not all(map(is_there, wanted)) and self.is_alive and time.monotonic() < end:
            time.sleep(_LOOKS_S)

    def wishes(self) -> Sequence[str]:
        """Keys of what others wait for, if they have said so."""
        try:
            return self._wishes.read_text().split()
        except (OSError, ValueError):
            return ()

    def release(self) -> None:
        """There is none any more."""
        for path in (self.path, self._wishes):
            with suppress(OSError):
                path.unlink()

    def _builds(self) -> Sequence[str] | None:
        """Keys of what it was to build; None if there is none at work."""
        try:
            pid, *keys = self.path.read_text().split()
            age = time.time() - self.path.stat().st_mtime
            os.kill(int(pid), 0)
        except (OSError, ValueError, OverflowError):
            return None
        return keys if abs(age) < LASTS_S else None

    @property
    def _wishes(self) -> Path:
        return self.path.with_suffix(".wishes")


def write_will(path: Path, store: BinaryStore, heir: Heir, programs: Sequence[Entry]) -> None:
    """Write what `fulfil` reads. OSError if that is not possible."""
    will = {"store": str(store.folder), "cap": store.cap_bytes, "heir": str(heir.path), "programs": programs}
    path.write_text(json.dumps(will), encoding="utf-8")


def fulfil(path: Path, build: Callable[[str, str], bytes], built: Mapping[tuple[str, str], bytes]) -> None:
    """Build what a will lists and nobody has stored yet, by `build(options, text)`, and remove the will's folder.

    What others wait for comes first. built: what is there already. It ends where the cache folder has gone.
    """
    import shutil

    if hasattr(signal, "alarm"):
        signal.alarm(LASTS_S)
    will = json.loads(path.read_text(encoding="utf-8"))
    store = BinaryStore(Path(will["store"]), will["cap"])
    heir = Heir(Path(will["heir"]))
    left = {key: (options, text) for key, options, text in will["programs"]}
    os.chdir("/")
    try:
        while left:
            key = next((k for k in heir.wishes() if k in left), next(iter(left)))
            options, text = left.pop(key)
            if not store.folder.is_dir():
                break
            if store.path(key).exists():
                continue
            binary = built.get((options, text)) or build(options, text)
            if binary and store.folder.is_dir():
                store.put(key, binary)
    finally:
        heir.release()
        shutil.rmtree(path.parent, ignore_errors=True)
