"""InflightRuns: runs of one program put on the queue behind each other, each taking outputs of the one before it there.

The device goes on from run to run while the host prepares the next ones, and reads what all have computed at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....errors import OpaliteError
from ....plan.template.dynamic_parameters import Values
from ..memory.output_ring_buffer import OutputRingBuffer
from ..run_trace import RunTrace
from ..shape_instance import ShapeInstance
from .launch_parameter_buffer import MAX_IN_FLIGHT
from .queue_strategy import Queue


class EnqueueTarget(Protocol):
    """What runs go through."""

    @property
    def queue(self) -> Queue:
        """Whose phases they are."""

    def begin(self, values: Values, in_flight: int, uploads: InlineUpload | None) -> bool:
        """Have the next run use `values`, behind so many others on the queue; whether it can. courier: what brings
        them, if any."""


class InflightRuns:
    """Up to AHEAD runs that nobody waits for. Whoever adds some calls `finish` or `drop`, and has the executable's lock
    until then."""

    def __init__(
        self,
        instance: ShapeInstance,
        target: EnqueueTarget,
        chained: Mapping[int, int],
        kept: Mapping[int, DeviceTensor],
        write_tables: Callable[[Values, InlineUpload | None], list[Any]],
        rows: OutputRingBuffer,
    ) -> None:
        """chained: by slot on the host of an input, that of the output which it is from the second run on. kept:
        outputs by slot on the host that stay where they are. write_tables: writes constants that depend on sizes. rows:
        what takes outputs that do not."""
        self._instance, self._target, self._queue = instance, target, target.queue
        self._relayed, self._kept, self._write_tables, self._rows = chained, kept, write_tables, rows
        self._runs: list[list[Any]] = []
        self._pending: list[Any] = []
        self._began = time.perf_counter()
        io = instance.prepared.io
        io.bytes_up = io.bytes_down = 0
        idle = instance.prepared.rt.set_resident_worker(None)
        if idle is not None:
            idle.leave()

    def add(self, values: Values, feeds: Sequence[Any]) -> bool:
        """Put a run on the queue; whether there was room for it. values: of its sizes."""
        count, rows = len(self._runs), self._rows
        if count == MAX_IN_FLIGHT or not self._target.begin(values, count, rows.uploads):
            return False
        hosts = self._instance.filled(feeds)
        chained = self._relayed if count else {}
        self._runs.append(hosts)
        self._pending += self._write_tables(values, rows.uploads)
        self._pending += self._queue.enqueue(hosts, self._kept, chained, rows, count)
        return True

    def finish(self) -> tuple[list[list[Any]], RunTrace] | None:
        """Outputs of each run, and what all of them did; None where what they computed is not to be believed."""
        self._pending.append(self._rows.collect(len(self._runs)))
        enqueued = time.perf_counter()
        believed = self._queue.finish()
        self._pending.clear()
        if not believed:
            return None
        prepared, rows = self._instance.prepared, self._rows
        found = [[rows.copy_out(hosts[n]) for n in self._instance.outputs] for hosts in self._runs]
        io = prepared.io
        return found, RunTrace(
            upload_s=enqueued - self._began,
            compute_s=time.perf_counter() - enqueued,
            strategy=f"{self._queue.name} ahead",
            launches=prepared.launch_count * len(self._runs),
            bytes_up=io.bytes_up,
            bytes_down=io.bytes_down,
            waits=1,
            runs=len(self._runs),
        )

    def drop(self) -> None:
        """Let them end, unread."""
        with suppress(OpaliteError):
            self._rows.collect(0)  # memory counts as having what it was brought
            self._queue.finish()
        self._pending.clear()
