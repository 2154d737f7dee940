"""ModelStatisticsCounter: counts of a model version for the statistics extension."""

from __future__ import annotations

import time

from ..wire.infer_messages import BatchStatistics, Duration, Statistics
from .worker_process import Times


class _Sum:
    """A mutable Duration."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = self.ns = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += max(ns, 0)

    def snapshot(self) -> Duration:
        return Duration(self.count, self.ns)


class ModelStatisticsCounter:
    """Counts since the version was loaded. Times in nanoseconds."""

    def __init__(self) -> None:
        self._last_ms = self._inferences = self._executions = 0
        self._success, self._fail, self._queue, self._cancel = _Sum(), _Sum(), _Sum(), _Sum()
        self._parts = (_Sum(), _Sum(), _Sum())
        self._batches: dict[int, tuple[_Sum, _Sum, _Sum]] = {}

    def add_batch(self, size: int, times: Times) -> None:
        """Count a batch of `size` rows."""
        self._last_ms = time.time_ns() // 1_000_000
        self._executions += 1
        self._inferences += size
        sums = self._batches.setdefault(size, (_Sum(), _Sum(), _Sum()))
        for total, ns in zip(sums, parts_of(times), strict=True):
            total.add(ns)

    def add_success(self, total: int, queue: int, times: Times) -> None:
        """Count a request answered after `total`."""
        self._success.add(total)
        self._queue.add(queue)
        for part, ns in zip(self._parts, parts_of(times), strict=True):
            part.add(ns)

    def add_failure(self, total: int) -> None:
        """Count a request that failed after `total`."""
        self._fail.add(total)

    def add_cancel(self, total: int) -> None:
        """Count a request whose client disconnected after `total`."""
        self._cancel.add(total)

    def snapshot(self, name: str, version: str) -> Statistics:
        """The current statistics."""
        batches = (BatchStatistics(n, *(s.snapshot() for s in sums)) for n, sums in sorted(self._batches.items()))
        return Statistics(
            name,
            version,
            self._last_ms,
            self._inferences,
            self._executions,
            self._success.snapshot(),
            self._fail.snapshot(),
            self._queue.snapshot(),
            self._parts[0].snapshot(),
            self._parts[1].snapshot(),
            self._parts[2].snapshot(),
            self._cancel.snapshot(),
            tuple(batches),
        )


def parts_of(times: Times) -> tuple[int, int, int]:
    """The times of input copies, run and output copies of a batch."""
    return times.written - times.taken + times.input, times.infer, times.output
