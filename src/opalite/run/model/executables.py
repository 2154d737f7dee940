"""ExecutableCache: what a model has compiled, by the segment or bundled program that it was compiled from."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ..execute.executable import Executable
from .behind import Job
from .steady import SteadyRun


@dataclass(eq=False)
class Compiled:
    """An Executable, and what its model has to know of it.

    notes: sentences on how it was compiled. may_overflow: halves may not hold the values, so that outputs must be
    looked at. is_proven: outputs of a run were looked at; before that none stays on the device. steady: how runs like
    the last one go, once that is known. job: makes what will take its place. is_replaced: whether that is there.
    """

    executable: Executable
    notes: tuple[str, ...] = ()
    may_overflow: bool = False
    is_proven: bool = False
    steady: SteadyRun | None = None
    job: Job | None = None
    is_replaced: bool = False


class ExecutableCache:
    """Compiled programs by what they were compiled from: a segment, which is a part of a model for known shapes, or a
    variant of a bundle. They live as long as that, or until `clear`. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waits = 0
        self.waited_s = 0.0
        self._kept: weakref.WeakKeyDictionary[Hashable, Compiled] = weakref.WeakKeyDictionary()
        self._making: weakref.WeakKeyDictionary[Hashable, threading.RLock] = weakref.WeakKeyDictionary()

    def find(self, key: Hashable) -> Compiled | None:
        """What was compiled for `key`."""
        with self._lock:
            return self._kept.get(key)

    def find_or_make(self, key: Hashable, make: Callable[[], Compiled]) -> Compiled:
        """What was compiled for `key`, or what `make` gives now. Threads that want the same wait for the first of them;
        different keys are compiled side by side.
        """
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                return found
            making = self._making.setdefault(key, threading.RLock())
        started = time.perf_counter()
        with making:
            found = self.find(key)
            if found is None:
                return self.keep(key, make())
        with self._lock:
            self.waits += 1
            self.waited_s += time.perf_counter() - started
        return found

    def keep(self, key: Hashable, compiled: Compiled) -> Compiled:
        """Keep `compiled` for `key`, in place of what was there; gives it back."""
        with self._lock:
            self._kept[key] = compiled
        return compiled

    def swap(self, key: Hashable, old: Compiled, new: Compiled) -> bool:
        """Keep `new` in the place of `old`, unless that has gone; runs of the key from the next on go through it."""
        with self._lock:
            if self._kept.get(key) is not old:
                return False
            self._kept[key] = new
        old.is_replaced = True
        if old.steady is not None:
            old.steady.is_current = False
        return True

    @property
    def all(self) -> list[Compiled]:
        """All that is kept."""
        with self._lock:
            return list(self._kept.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)
