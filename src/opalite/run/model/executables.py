"""ExecutableCache: what a model has compiled, by the segment or bundled program that it was compiled from."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ..execute.executable import Executable
from .steady import SteadyRun


@dataclass(eq=False)
class Compiled:
    """An Executable, and what its model has to know of it.

    notes: sentences on how it was compiled. may_overflow: halves may not hold the values, so that outputs must be
    looked at. is_proven: outputs of a run were looked at; before that none stays on the device. steady: how runs like
    the last one go, once that is known.
    """

    executable: Executable
    notes: tuple[str, ...] = ()
    may_overflow: bool = False
    is_proven: bool = False
    steady: SteadyRun | None = None


class ExecutableCache:
    """Compiled programs by what they were compiled from: a segment, which is a part of a model for known shapes, or a
    variant of a bundle. They live as long as that, or until `clear`. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
        with making:
            return self.find(key) or self.keep(key, make())

    def keep(self, key: Hashable, compiled: Compiled) -> Compiled:
        """Keep `compiled` for `key`, in place of what was there; gives it back."""
        with self._lock:
            self._kept[key] = compiled
        return compiled

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)
