"""InflightRuns: several runs of one program on the queue, each with outputs of the previous one as inputs.

The device executes run after run while the host prepares the next ones, and reads all results at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....errors import OpaliteError
from ....plan.template.dynamic_parameters import Values
from ..memory.output_ring_buffer import OutputRingBuffer
from ..run_trace import RunTrace
from ..shape_instance import ShapeInstance
from .launch_parameter_buffer import MAX_IN_FLIGHT
from .queue_strategy import Queue


class InflightRuns:
    """Up to MAX_IN_FLIGHT runs. The caller holds the executable's lock until it calls `finish` or `drop`."""

    def __init__(
        self,
        instance: ShapeInstance,
        queue: Queue,
        chained: Mapping[int, int],
        on_device: Mapping[int, DeviceTensor],
        prepare: Callable[[Values, InlineUpload | None], list[Any]],
        ring: OutputRingBuffer,
    ) -> None:
        """Count transfers from 0, and dismiss resident workers.

        chained: by host slot of an input, the host slot of the output that it is from the second run on. on_device:
        tensors of outputs, by host slot, that stay in their buffers. prepare: writes what depends on sizes for
        each run. ring: gets the other outputs.
        """
        self._instance, self._queue = instance, queue
        self._relayed, self._on_device, self._prepare, self._ring = chained, on_device, prepare, ring
        self._runs: list[list[Any]] = []
        self._pending: list[Any] = []
        self._began = time.perf_counter()
        io = instance.io
        io.bytes_up = io.bytes_down = 0
        resident = instance.rt.set_resident_worker(None)
        if resident is not None:
            resident.dismiss_workers()

    def add(self, values: Values, feeds: Sequence[Any]) -> bool:
        """Enqueue a run. Returns False if there is no room. values: dynamic parameters for its sizes."""
        count, ring = len(self._runs), self._ring
        if count == MAX_IN_FLIGHT or not self._queue.begin(values, count, ring.uploads):
            return False
        host_values = self._instance.filled(feeds)
        chained = self._relayed if count else {}
        self._runs.append(host_values)
        self._pending += self._prepare(values, ring.uploads)
        self._pending += self._queue.enqueue(host_values, self._on_device, chained, ring, count)
        return True

    def finish(self) -> tuple[list[list[Any]], RunTrace] | None:
        """Wait. Returns the outputs of each run, and the trace of all; None if the results are not valid."""
        self._pending.append(self._ring.collect(len(self._runs)))
        enqueued = time.perf_counter()
        believed = self._queue.finish()
        self._pending.clear()
        if not believed:
            return None
        instance, ring = self._instance, self._ring
        found = [[ring.copy_out(host_values[n]) for n in instance.outputs] for host_values in self._runs]
        io = instance.io
        return found, RunTrace(
            upload_s=enqueued - self._began,
            compute_s=time.perf_counter() - enqueued,
            strategy=f"{self._queue.name} in flight",
            launches=len(instance.launch_steps) * len(self._runs),
            bytes_up=io.bytes_up,
            bytes_down=io.bytes_down,
            waits=1,
            runs=len(self._runs),
        )

    def drop(self) -> None:
        """Wait, and discard the results."""
        with suppress(OpaliteError):
            self._ring.collect(0)  # its pending uploads are counted as done
            self._queue.finish()
        self._pending.clear()
