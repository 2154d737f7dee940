"""WorkerMemory: resident memory of worker processes, read from /proc at each scrape."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class WorkerMemory(Collector):
    """A Prometheus collector. pids: model, version and device of each running worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pids: Mapping[int, tuple[str, str, str]] = {}
        registry.register(self)

    def describe(self) -> list[GaugeMetricFamily]:
        """The metric family without values."""
        return [_family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The sum of all workers for each model and device."""
        sums: dict[tuple[str, str, str], int] = {}
        for pid, at in self.pids.items():
            if (size := _resident(pid)) is not None:
                sums[at] = sums.get(at, 0) + size
        family = _family()
        for at, size in sums.items():
            family.add_metric(at, size)
        yield family


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "opalite_worker_resident_memory_bytes",
        "Resident memory of worker processes.",
        labels=("model", "version", "device"),
    )


def _resident(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
