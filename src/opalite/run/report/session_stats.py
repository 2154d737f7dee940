"""SessionStats: the statistics of a session, as `session.stats()` returns them."""

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
from ..model.session_counters import CAUSES, SessionCounters


@dataclass(frozen=True)
class SessionStats:
    """Statistics of a session since it was opened; `bytes`, `sizes` and `pending` are current values.

    runs, runs_by_tier: the runs, in total and by 'optimized', 'generic' (docs/tiers.md), both joined by '+' if parts of
        the model used different tiers, and 'host' if no program ran. tier: of the last run, '' before the first.
    concurrent_runs: runs on a replica, which did not wait for another thread's run (docs/threads.md).
    plans_made: plans made from the model. plans_loaded: plans from the cache or a bundle.
    programs_built: compiled while a caller waited. programs_built_in_background: compiled otherwise. programs_loaded:
        read from the cache folder or a bundle. programs_shared: already present in this process.
    fallbacks: gaps of the generic tier: launches of optimized kernels, by kernel, and host nodes, as 'host: OPERATOR'.
    respecialized_plans: faster plans made in the background for sizes far from those of the first plan.
    swaps: optimized executables that have replaced generic ones. pending: optimized executables being built.
    faults: errors of building optimized programs, where generic programs continue to serve.
    waits, waits_ms: number and total milliseconds of callers' waits, by cause: 'plan' (import and planning), 'tune',
        'build', 'same_size' (another thread compiled the same size), 'optimized' (for optimized programs, in profile()
        and the like), 'run_lock' (another thread's run).
    sizes: executables kept, one for each segment of the model and size of its inputs.
    bytes: memory of the executables and their replicas: 'weights', 'arena' (intermediates), 'images',
        'inputs_outputs', 'host' (constants of host operators).
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
        """The statistics as a dict of JSON types."""
        return {**asdict(self), "faults": list(self.faults)}

    def to_json(self) -> str:
        """The statistics as one line of JSON with a fixed order of keys."""
        return json.dumps(self.to_raw())


def make_stats(
    runs: Mapping[str, int],
    tier: str,
    counters: SessionCounters,
    background: BackgroundCompiler | None,
    lock: RunLock,
    caches: Sequence[ExecutableCache],
) -> SessionStats:
    """Collect the statistics. runs: by tier. tier: of the last run. caches: of the session's models."""
    compiled = [c for cache in caches for c in cache.all]
    kept = [*(c.executable for c in compiled), *lock.concurrent.executables]
    waits = _waits_of(counters, lock, caches)
    callers = counters.programs
    others = ProgramCounts() if background is None else background.counts
    return SessionStats(
        runs=sum(runs.values()),
        tier=tier,
        runs_by_tier=dict(runs),
        concurrent_runs=lock.concurrent.runs,
        plans_made=counters.plans_made,
        plans_loaded=counters.plans_loaded,
        programs_built=callers.built,
        programs_built_in_background=others.built,
        programs_loaded=callers.loaded + others.loaded,
        programs_shared=callers.shared + others.shared,
        fallbacks=dict(sorted(counters.fallbacks.items())),
        respecialized_plans=sum(cache.respecialized for cache in caches),
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
    """The number and total seconds of callers' waits, by cause."""
    with counters.lock:
        found = dict(counters.waits)
    same = list(caches)
    found["same_size"] = sum(c.waits for c in same), sum(c.waited_s for c in same)
    found["run_lock"] = lock.waits, lock.waited_s
    return {cause: found.get(cause, (0, 0.0)) for cause in CAUSES}


def bytes_by_kind(executables: Iterable[Executable]) -> dict[str, int]:
    """Bytes of memory by kind; memory that executables share counts once."""
    found = dict.fromkeys(("weights", "arena", "images", "inputs_outputs", "host"), 0)
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
