"""SessionStats: what a session did since it was opened, for those who operate it - what `session.stats()` returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...cl.runtime_counters import ProgramCounts
from ..execute.executable import Executable
from ..model.background.background_compile import BackgroundCompiler
from ..model.executable_cache import ExecutableCache
from ..model.run_lock import RunLock
from ..model.session_counters import SessionCounters

CAUSES = ("plan", "tune", "build", "same_size", "behind", "turn")


@dataclass(frozen=True)
class SessionStats:
    """Counts since the session was opened, but for `bytes`, `sizes` and `pending`, which are as of now.

    runs: all; runs_by_tier: of them by 'optimized', 'generic' (docs/tiers.md), joined by '+' where the parts of a model
        went through both, and 'host' where no program ran. runs_beside: those that did not wait for another thread's,
        because they had memory of their own (docs/threads.md). tier: of the last run, '' before the first.
    plans_made: programs planned from the model; plans_loaded: taken from the cache or a bundle.
    programs_built: compiled while a caller waited; programs_built_behind: compiled while none did; programs_loaded:
        read from the cache folder or a bundle; programs_shared: there already in this process.
    fallbacks: what general executables, as they were made, had no general kernels for: launches of special kernels, by
        kernel, and nodes that the host computes, as 'host: OPERATOR'.
    nearer_plans: made behind for sizes that came back, far from those that a plan was made for, and faster there.
    swaps: specialised executables that took a general one's place. pending: such that are being made.
    faults: why specialised programs could not be made, where general ones go on.
    waits, waits_ms: how often callers waited, and how long in all, by cause: 'plan' (import and planning), 'tune',
        'build', 'same_size' (another thread compiled what this one wanted, too), 'behind' (for specialised programs,
        by profile() and the like), 'turn' (another thread's run).
    sizes: programs at hand, one for each part of the model and size of its inputs; an executable keeps several.
    bytes: what those hold, with the memory of runs beside others, by kind: 'weights', 'arena' (intermediates),
        'images', 'exchange' (inputs and outputs), and 'host' (constants that operators on the host read).
    """

    runs: int = 0
    tier: str = ""
    runs_by_tier: Mapping[str, int] = field(default_factory=dict)
    concurrent_runs: int = 0
    plans_made: int = 0
    plans_loaded: int = 0
    programs_built: int = 0
    programs_built_in_background: int = 0
    programs_loaded: int = 0
    programs_shared: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    respecialized_plans: int = 0
    swaps: int = 0
    pending: int = 0
    faults: tuple[str, ...] = ()
    waits: Mapping[str, int] = field(default_factory=dict)
    waits_ms: Mapping[str, float] = field(default_factory=dict)
    sizes: int = 0
    bytes: Mapping[str, int] = field(default_factory=dict)

    def to_raw(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "faults": list(self.faults)}

    def to_json(self) -> str:
        """One line of JSON, keys in a fixed order."""
        return json.dumps(self.to_raw())


def make_stats(
    runs: Mapping[str, int],
    tier: str,
    counters: SessionCounters,
    background: BackgroundCompiler | None,
    lock: RunLock,
    caches: Sequence[ExecutableCache],
) -> SessionStats:
    """The figures of a session. runs: by tier. tier: of the last run. caches: of its models."""
    compiled = [c for cache in caches for c in cache.all]
    kept = [*(c.executable for c in compiled), *lock.beside.executables]
    waits = _waits_of(counters, lock, caches)
    callers = counters.programs
    others = ProgramCounts() if background is None else background.counts
    return SessionStats(
        runs=sum(runs.values()),
        tier=tier,
        runs_by_tier=dict(runs),
        concurrent_runs=lock.beside.runs,
        plans_made=counters.plans_made,
        plans_loaded=counters.plans_loaded,
        programs_built=callers.built,
        programs_built_in_background=others.built,
        programs_loaded=callers.loaded + others.loaded,
        programs_shared=callers.shared + others.shared,
        fallbacks=dict(sorted(counters.fallbacks.items())),
        respecialized_plans=sum(cache.nearer for cache in caches),
        swaps=0 if background is None else background.swaps,
        pending=0 if background is None else sum(job.replaces for job in background.jobs),
        faults=() if background is None else tuple(background.faults),
        waits={cause: count for cause, (count, _) in waits.items()},
        waits_ms={cause: round(1e3 * seconds, 3) for cause, (_, seconds) in waits.items()},
        sizes=sum(c.sizes_kept for c in compiled),
        bytes=bytes_by_kind(kept),
    )


def _waits_of(
    counters: SessionCounters, lock: RunLock, caches: Iterable[ExecutableCache]
) -> dict[str, tuple[int, float]]:
    """How often callers waited, and how many seconds in all, by cause."""
    with counters.lock:
        found = dict(counters.waits)
    same = list(caches)
    found["same_size"] = sum(c.waits for c in same), sum(c.waited_s for c in same)
    found["turn"] = lock.waits, lock.waited_s
    return {cause: found.get(cause, (0, 0.0)) for cause in CAUSES}


def bytes_by_kind(executables: Iterable[Executable]) -> dict[str, int]:
    """What executables hold, memory that they share counted once."""
    found = dict.fromkeys(("weights", "arena", "images", "exchange", "host"), 0)
    shared: dict[int, int] = {}
    host: dict[int, int] = {}
    for executable in executables:
        shared |= executable.memory.weight_bytes
        for kind, nbytes in executable.memory.bytes_by_kind.items():
            found[kind] += nbytes
        host |= {id(a): int(getattr(a, "nbytes", 0)) for a in executable.program.host_consts.values()}
    found["weights"] += sum(shared.values())
    found["host"] += sum(host.values())
    return found
