"""Prepared launches and recordings: everything about a launch is settled once, running it only enqueues.

Measured on PoCL 3.0: a kernel object takes 1.4 µs of host time, an argument half a microsecond, enqueueing nearly one
(see raw_opencl_calls.py).
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyopencl as cl

from ...errors import DeviceError
from ..device.driver_errors import cl_errors, describe_code, translate
from ..memory.device_pointers import BufferSlice
from ..runtime_counters import Counters
from .kernel_object import KernelObject
from .raw_opencl_calls import arg_bytes, enqueue_args, find_enqueue, find_set_arg, find_set_pointer
from .replay import RecordedLaunches, Replay

_log = logging.getLogger(__name__)
Grid = tuple[int, ...]


class LocalBytes:
    """Kernel argument: `nbytes` of local memory."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalBytes) and other.nbytes == self.nbytes

    def __hash__(self) -> int:
        return hash(self.nbytes)


KernelArg: TypeAlias = "cl.MemoryObjectHolder | BufferSlice | LocalBytes | np.generic"
"""Memory, a part of it, local memory, or a number of its exact NumPy type."""


class PreparedLaunch:
    """A kernel object of its own with all arguments set, a global size and a work-group size.

    `label` names the node or kernel in errors and profiles. Memory objects are kept alive as long as the launch.
    """

    __slots__ = ("_args", "_counters", "_device", "_handle", "_limit", "_set", "grid", "group", "kernel", "label")

    def __init__(
        self,
        program: cl._Program,
        entry: str,
        args: Sequence[KernelArg],
        grid: Grid,
        group: Grid | None,
        *,
        label: str,
        device: str,
        counters: Counters,
    ) -> None:
        """DeviceError if `entry` is not in the program or the arguments do not fit it."""
        self.grid = grid
        self.group = group
        self.label = label or entry
        self._device = device
        self._counters = counters
        self._args: list[Any] = [None] * len(args)
        self._limit: int | None = None
        self._set = find_set_arg()
        with cl_errors(f"Making kernel '{entry}'" + (f" of {label}" if label else ""), device):
            self.kernel = KernelObject(program, entry)
            expected = self.kernel.num_args
        self._handle = ctypes.c_void_p(self.kernel.int_ptr)
        counters.kernels_made += 1
        if expected != len(args):
            raise DeviceError(f"kernel '{entry}' takes {expected} arguments, {self.label} gives {len(args)}")
        for i, arg in enumerate(args):
            self.set_arg(i, arg)

    def set_arg(self, index: int, arg: KernelArg) -> None:
        """Set argument `index`; its memory must not be in use by an enqueued launch of another thread."""
        is_local = isinstance(arg, LocalBytes)
        if isinstance(arg, BufferSlice):
            self._point(index, arg)
        elif self._set is None:
            with cl_errors(f"Setting argument {index} of {self.label}", self._device):
                self.kernel.wrapped.set_arg(index, cl.LocalMemory(arg.nbytes) if is_local else arg)
        else:
            size, memory = (arg.nbytes, None) if is_local else arg_bytes(arg)
            if code := self._set(self._handle, ctypes.c_uint32(index), ctypes.c_size_t(size), memory):
                doing = f"Setting argument {index} of {self.label}"
                raise describe_code(code, "clSetKernelArg", doing, self._device)
        self._args[index] = arg
        self._counters.args_set += 1

    def _point(self, index: int, region: BufferSlice) -> None:
        point = find_set_pointer()
        assert point is not None, "regions are made where pointers can be set"
        if code := point(self._handle, ctypes.c_uint32(index), ctypes.c_void_p(region.address)):
            doing = f"Setting argument {index} of {self.label}"
            raise describe_code(code, "clSetKernelArgSVMPointer", doing, self._device)

    def update(self, args: Sequence[KernelArg], grid: Grid, group: Grid | None) -> None:
        """Take other arguments, of which only those are set that differ, and other sizes. As `set_arg`."""
        for i, wanted in _changes(self._args, args):
            self.set_arg(i, wanted)
        self.grid, self.group = grid, group

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Those that are set."""
        return tuple(self._args)

    def changed_since(self, before: Sequence[Any]) -> list[tuple[int, Any]]:
        """By number, the arguments that are others than when `arguments` were `before`."""
        return _changes(before, self._args)

    def release_arguments(self) -> None:
        """Let go of the memory of all arguments; `update` must set others before the launch is enqueued again."""
        self._args = [None] * len(self._args)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute: a global size of zero, which drivers refuse."""
        return not all(self.grid)

    def enqueue(self, queue: cl.CommandQueue) -> cl.Event | None:
        """Enqueue once; the event, or None for an empty launch."""
        if self.is_empty:
            return None
        self._counters.enqueues += 1
        try:
            return cl.enqueue_nd_range_kernel(queue, self.kernel.wrapped, self.grid, self.group)
        except cl.Error as e:
            raise translate(e, self.describe(), self._device) from e

    def work_group_limit(self, device: cl.Device) -> int:
        """Largest work-group that this kernel runs with on `device`, its registers considered."""
        if self._limit is None:
            with cl_errors(f"Asking for the work-group limit of {self.label}", self._device):
                self._limit = int(
                    self.kernel.wrapped.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
                )
        return self._limit

    def fit_group(self, device: cl.Device) -> None:
        """Divide the work-group until the kernel's registers and local memory allow it; the grid stays a multiple.

        The outer axes give way first, since neighbours along the first share their reads.
        """
        if self.group is None or math.prod(self.group) <= 64:
            return
        limit = self.work_group_limit(device)
        group = list(self.group)
        while math.prod(group) > limit:
            axis = max(i for i, size in enumerate(group) if size > 1)
            size = group[axis]
            group[axis] = size // next(d for d in range(2, size + 1) if size % d == 0)
        self.group = tuple(group)

    def describe(self) -> str:
        """The launch in words, for errors."""
        return f"Launching {self.label} with global size {self.grid} and work-group {self.group}"


def _changes(before: Sequence[Any], now: Sequence[Any]) -> list[tuple[int, Any]]:
    pairs = enumerate(zip(now, before, strict=True))
    return [(i, wanted) for i, (wanted, held) in pairs if wanted is not held and not _is_same(wanted, held)]


def _is_same(wanted: KernelArg, held: Any) -> bool:
    """Whether an argument need not be set again."""
    if isinstance(wanted, np.generic):
        return type(held) is type(wanted) and held.tobytes() == wanted.tobytes()  # 0.0 and -0.0 are not the same
    return isinstance(wanted, LocalBytes) and wanted == held


class LaunchSequence:
    """Launches that always run together, in order: one tight loop over argument tuples made once, or one replay.

    `flush_every` launches are handed to the device at once, so that it starts before all are enqueued; 0 leaves that to
    the driver. `raw` takes the calls of raw_opencl_calls.py where they can be had. With `replay` the second run on the
    same arguments records the launches, and from then on a run is a single call; results are equal. A driver that
    refuses to record is left alone: `refusal` says what it said.
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
        replay: Replay | None = None,
    ) -> None:
        self.launches = [launch for launch in launches if not launch.is_empty]
        self.refusal = ""
        self._queue = queue
        self._device = device
        self._counters = counters
        self._flush = flush_every > 0
        self._replay = replay if replay is not None and len(self.launches) >= replay.least else None
        self._buffer: RecordedLaunches | None = None
        self._has_run = False
        self._is_stale = False  # whether arguments were set since it was recorded
        self._enqueue = find_enqueue(holds_gil=holds_gil)
        calls: list[Any]
        if self._enqueue is not None:
            calls = [enqueue_args(queue, x.kernel, x.grid, x.group) for x in self.launches]
        else:
            calls = [(queue, x.kernel.wrapped, x.grid, x.group, None, None, False, False) for x in self.launches]
        step = flush_every if flush_every > 0 else max(len(calls), 1)
        self._chunks = [calls[i : i + step] for i in range(0, len(calls), step)]

    @property
    def replays(self) -> bool:
        """Whether runs after the first are replays."""
        return self._replay is not None

    def invalidate(self) -> None:
        """To be called after an argument of a launch was set: what was recorded holds the argument before it."""
        if self._buffer is not None and self._buffer.can_update:
            self._is_stale = True
        else:
            self._buffer, self._has_run = None, False

    def run(self) -> bool:
        """Enqueue every launch; does not wait. Returns whether it was a replay.

        DeviceError names the launch that the driver refused.
        """
        # Recorded after a plain run only: it pays for those that are run again, and a launch that cannot run never gets
        # there, on which PoCL 5.0 crashes.
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
        elif self._enqueue is not None:
            self._run_raw(self._enqueue)
        else:
            self._run_pyopencl()
        self._has_run = True
        count = len(self.launches)
        self._counters.enqueues += count
        return self._buffer is not None

    def _record(self, replay: Replay) -> None:
        try:
            self._buffer = replay.record(self._queue, self.launches, self._device)
        except DeviceError as e:
            self.refusal, self._replay = str(e), None
            _log.warning("launches are enqueued one by one: %s", e)
            return
        self._counters.recordings += 1

    def _run_raw(self, enqueue: Callable[..., int]) -> None:
        for chunk in self._chunks:
            for args in chunk:
                if code := enqueue(*args):
                    doing = self._launch_at(chunk, args).describe()
                    raise describe_code(code, "clEnqueueNDRangeKernel", doing, self._device)
            self._flush_queue()

    def _run_pyopencl(self) -> None:
        enqueue = cl.enqueue_nd_range_kernel
        for chunk in self._chunks:
            args = None
            try:
                for args in chunk:
                    enqueue(*args)
            except cl.Error as e:
                raise translate(e, self._launch_at(chunk, args).describe(), self._device) from e
            self._flush_queue()

    def _flush_queue(self) -> None:
        if self._flush:
            with cl_errors("Flushing the queue", self._device):
                self._queue.flush()

    def _launch_at(self, chunk: list[Any], args: Any) -> PreparedLaunch:
        before = self._chunks.index(chunk) * len(self._chunks[0])
        return self.launches[before + chunk.index(args)]
