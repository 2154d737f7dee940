"""SessionCounters: what a session's models counted, from which `session.stats()` is made."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import field

from ...cl.runtime_counters import ProgramCounts
from ...lazy_dataclass import dataclass

CAUSES = ("plan", "tune", "build", "same_size", "optimized", "run_lock")
"""Causes of callers' waits (docs/stats.md)."""


@dataclass
class SessionCounters:
    """Counters of one session, thread-safe by `lock`.

    plans_made, plans_loaded: plans from a graph, and from the cache or a bundle. programs: programs that a caller's
    thread waited for, by origin. waits: number and total seconds of callers' waits, by cause. runs: by tier,
    but for short_runs, which are of optimized programs (short_route.py), and counted by the run lock's holder.
    fallbacks: gaps of the generic tier, as SessionStats has them.
    """

    plans_made: int = 0
    plans_loaded: int = 0
    programs: ProgramCounts = field(default_factory=ProgramCounts)
    waits: dict[str, tuple[int, float]] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    short_runs: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return self.runs.total() + self.short_runs

    @property
    def runs_by_tier(self) -> dict[str, int]:
        """The number of runs of each tier."""
        return dict(self.runs + Counter(optimized=self.short_runs))

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
        """Count a wait of a caller, for one of CAUSES."""
        assert cause in CAUSES, f"{cause!r} is no cause of waits"
        if seconds <= 0:
            return
        with self.lock:
            count, total = self.waits.get(cause, (0, 0.0))
            self.waits[cause] = count + 1, total + seconds
