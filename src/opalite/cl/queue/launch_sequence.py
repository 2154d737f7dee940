"""LaunchSequence: launches that run together on one queue, enqueued one by one or replayed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from ...errors import DeviceError
from ..device.driver_errors import cl_errors, describe_code
from ..runtime_counters import Counters
from .prepared_launch import PreparedLaunch
from .raw_opencl_calls import enqueue_args, find_enqueue
from .recordable_queues import QueueRecordings, RecordableQueues

_log = logging.getLogger(__name__)


class LaunchSequence:
    """Launches that run together, in order, by direct calls of the loader if possible.

    flush_every: flush the queue after so many launches, so that the device starts early; 0 leaves that to the driver.
    replay: the second run with equal arguments records the launches; later runs are a single call. If the driver
    refuses to record, launches are enqueued as before, and `refusal` has its message.
    """

    __slots__ = (
        *("_buffer", "_chunks", "_counters", "_device", "_enqueue", "_flush", "_has_run", "_is_stale", "_queue"),
        *("_replay", "launches", "refusal"),
    )

    def __init__(
        self,
        queue: cl.CommandQueue,
        launches: Sequence[PreparedLaunch],
        *,
        flush_every: int,
        holds_gil: bool,
        device: str,
        counters: Counters,
        replay: RecordableQueues | None = None,
    ) -> None:
        self.launches = [launch for launch in launches if not launch.is_empty]
        self.refusal = ""
        self._queue = queue
        self._device = device
        self._counters = counters
        self._flush = flush_every > 0
        self._replay = replay if replay is not None and len(self.launches) >= replay.min_launches else None
        self._buffer: QueueRecordings | None = None
        self._has_run = False
        self._is_stale = False  # arguments were set since the recording
        loaded = find_enqueue(holds_gil=holds_gil)
        self._enqueue = loaded or _enqueue_by_pyopencl
        if loaded is not None:
            calls = [enqueue_args(queue, x.kernel, x.grid, x.group) for x in self.launches]
        else:
            calls = [(queue, x.kernel.wrapped, x.grid, x.group) for x in self.launches]
        step = flush_every if flush_every > 0 else max(len(calls), 1)
        self._chunks = [calls[i : i + step] for i in range(0, len(calls), step)]

    @property
    def replays(self) -> bool:
        """Return whether runs after the first are replays."""
        return self._replay is not None

    def invalidate(self) -> None:
        """Update the recording, if any, at the next run; call this after setting an argument of a launch."""
        if self._buffer is not None:
            self._is_stale = True
        else:
            self._has_run = False

    def run(self) -> bool:
        """Enqueue every launch without waiting; returns whether it was a replay.

        Raises DeviceError that names the launch which the driver refused.
        """
        # Recording after a plain run: it pays only for repeated runs, and only launches that can run are recorded.
        if self._is_stale and self._buffer is not None:
            self._is_stale = False
            if not self._buffer.update():
                self._buffer, self._has_run = None, False
        if self._replay is not None and self._buffer is None and self._has_run:
            self._record(self._replay)
        if self._buffer is not None:
            self._buffer.run()
            self._counters.replays += 1
            self._flush_queue()
        else:
            self._run_one_by_one()
        self._has_run = True
        self._counters.enqueues += len(self.launches)
        return self._buffer is not None

    def _record(self, replay: RecordableQueues) -> None:
        try:
            self._buffer = replay.record(self._queue, self.launches, self._device)
        except DeviceError as e:
            self.refusal, self._replay = str(e), None
            _log.warning("launches are enqueued one by one: %s", e)
            return
        self._counters.recordings += 1

    def _run_one_by_one(self) -> None:
        enqueue = self._enqueue
        for chunk in self._chunks:
            for args in chunk:
                if code := enqueue(*args):
                    number = self._chunks.index(chunk) * len(self._chunks[0]) + chunk.index(args)
                    doing = self.launches[number].describe()
                    raise describe_code(code, "clEnqueueNDRangeKernel", doing, self._device)
            self._flush_queue()

    def _flush_queue(self) -> None:
        if self._flush:
            with cl_errors("Flushing the queue", self._device):
                self._queue.flush()


def _enqueue_by_pyopencl(*args: Any) -> int:
    """Enqueue a launch through pyopencl; returns the status code."""
    try:
        cl.enqueue_nd_range_kernel(*args)
    except cl.Error as e:
        return int(e.code)
    return 0
