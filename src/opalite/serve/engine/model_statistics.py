"""ModelStatisticsCounter: what is counted of a version of a model, for the statistics extension."""

from __future__ import annotations

import time

from ..wire.infer_messages import BatchStatistics, Duration, Statistics
from .worker_process import Times


class _Sum:
    """How often, and nanoseconds in all."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = self.ns = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += max(ns, 0)

    def told(self) -> Duration:
        return Duration(self.count, self.ns)


class ModelStatisticsCounter:
    """Counts since the version was loaded. Durations in nanoseconds."""

    def __init__(self) -> None:
        self._last_ms = self._inferences = self._executions = 0
        self._success, self._fail, self._queue, self._cancel = _Sum(), _Sum(), _Sum(), _Sum()
        self._parts = (_Sum(), _Sum(), _Sum())
        self._batches: dict[int, tuple[_Sum, _Sum, _Sum]] = {}

    def add_batch(self, size: int, times: Times) -> None:
        """A batch of `size` rows was run."""
        self._last_ms = time.time_ns() // 1_000_000
        self._executions += 1
        self._inferences += size
        sums = self._batches.setdefault(size, (_Sum(), _Sum(), _Sum()))
        for total, ns in zip(sums, parts_of(times), strict=True):
            total.add(ns)

    def add_success(self, total: int, queue: int, times: Times) -> None:
        """A request has its answer after `total`."""
        self._success.add(total)
        self._queue.add(queue)
        for part, ns in zip(self._parts, parts_of(times), strict=True):
            part.add(ns)

    def add_failure(self, total: int) -> None:
        """A request failed after `total`."""
        self._fail.add(total)

    def add_cancel(self, total: int) -> None:
        """A request was given up by its client after `total`."""
        self._cancel.add(total)

    def told(self, name: str, version: str) -> Statistics:
        """As the extension has it."""
        batches = (BatchStatistics(n, *(s.told() for s in sums)) for n, sums in sorted(self._batches.items()))
        return Statistics(
            name,
            version,
            self._last_ms,
            self._inferences,
            self._executions,
            self._success.told(),
            self._fail.told(),
            self._queue.told(),
            self._parts[0].told(),
            self._parts[1].told(),
            self._parts[2].told(),
            self._cancel.told(),
            tuple(batches),
        )


def parts_of(times: Times) -> tuple[int, int, int]:
    """Input, run and output of a batch."""
    return times.written - times.taken + times.input, times.infer, times.output
