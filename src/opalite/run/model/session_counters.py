"""SessionCounters: what a session's models counted, from which `session.stats()` is made."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from ...cl.runtime_counters import ProgramCounts


@dataclass
class SessionCounters:
    """Thread-safe by `lock`.

    plans_made: Programs planned from a graph; plans_loaded: read from the cache or a bundle. programs: where those came
    from that a caller's thread waited for. waits: by cause, how often callers waited, and how many seconds in all.
    runs: by tier. fallbacks: what general executables have no general
    kernels for, as stats() tells.
    """

    plans_made: int = 0
    plans_loaded: int = 0
    programs: ProgramCounts = field(default_factory=ProgramCounts)
    waits: dict[str, tuple[int, float]] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def run_count(self) -> int:
        """How many runs there were."""
        return self.runs.total()

    def add_plan(self, made: int = 0, loaded: int = 0) -> None:
        """Count plans."""
        with self.lock:
            self.plans_made += made
            self.plans_loaded += loaded

    def add_fallbacks(self, launches: Counter[str]) -> None:
        """Count launches by kernel."""
        with self.lock:
            self.fallbacks += launches

    def add_wait(self, cause: str, seconds: float) -> None:
        """A caller has waited."""
        if seconds <= 0:
            return
        with self.lock:
            count, total = self.waits.get(cause, (0, 0.0))
            self.waits[cause] = count + 1, total + seconds
