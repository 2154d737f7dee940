"""SessionMetrics: statistics of the workers' sessions (docs/stats.md), summed over replaced workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

_PLANS = {"made": "plans_made", "loaded": "plans_loaded"}
_PROGRAMS = {
    "built": "programs_built",
    "built_in_background": "programs_built_in_background",
    "loaded": "programs_loaded",
    "shared": "programs_shared",
}
_AT = ("model", "version", "device")
_Labels = tuple[str, str, str]


class SessionMetrics:
    """Adds the increments of each worker since its last report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        r = registry
        self._plans = Counter("opalite_plans", "Plans made, or loaded from a cache.", (*_AT, "origin"), registry=r)
        self._programs = Counter(
            "opalite_programs", "Device programs by origin.", (*_AT, "origin"),
            registry=r,
        )  # fmt: skip
        self._waits = Counter("opalite_session_wait_seconds", "Waits in sessions.", (*_AT, "cause"), registry=r)
        self._bytes = Gauge("opalite_session_memory_bytes", "Memory that sessions hold.", (*_AT, "kind"), registry=r)
        self._counts: dict[int, dict[tuple[str, str], float]] = {}
        self._held: dict[int, tuple[_Labels, Mapping[str, int]]] = {}

    def update(self, pid: int, at: _Labels, stats: Mapping[str, Any]) -> None:
        """Add the `session.stats().to_raw()` of worker `pid`. at: model, version and device."""
        for counter, names in ((self._plans, _PLANS), (self._programs, _PROGRAMS)):
            for origin, name in names.items():
                self._add(counter, pid, at, origin, name, float(stats.get(name, 0)))
        for cause, ms in stats.get("waits_ms", {}).items():
            self._add(self._waits, pid, at, cause, f"wait {cause}", ms / 1e3)
        self._held[pid] = at, dict(stats.get("bytes", {}))
        self._show(at)

    def forget(self, pid: int) -> None:
        """Remove an ended worker: its memory is free, its counts remain."""
        self._counts.pop(pid, None)
        gone = self._held.pop(pid, None)
        if gone is not None:
            self._show(gone[0], gone[1])

    def _add(self, counter: Counter, pid: int, at: _Labels, label: str, name: str, value: float) -> None:
        last = self._counts.setdefault(pid, {})
        key = (at[0] + "\0" + at[1], name)
        grown = value - last.get(key, 0.0)
        last[key] = value
        if grown > 0:
            counter.labels(*at, label).inc(grown)

    def _show(self, at: _Labels, gone: Mapping[str, int] | None = None) -> None:
        sums = dict.fromkeys(gone or (), 0)
        for other, held in self._held.values():
            if other == at:
                for kind, size in held.items():
                    sums[kind] = sums.get(kind, 0) + size
        for kind, size in sums.items():
            self._bytes.labels(*at, kind).set(size)
