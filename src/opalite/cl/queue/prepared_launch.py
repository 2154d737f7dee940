"""PreparedLaunch and LaunchSequence: launches whose arguments are set once, so that a run only enqueues them.

Host time on PoCL 3.0: 1.4 µs for a kernel object, 0.5 µs for an argument, 0.9 µs to enqueue (raw_opencl_calls.py).
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
"""A memory object, a slice of a buffer, local memory, or a scalar of the exact NumPy type."""


class PreparedLaunch:
    """A kernel object with all arguments set, and its global and local size.

    label: node or kernel in errors and profiles. The launch keeps its memory objects alive.
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
        """Raises DeviceError if the program lacks `entry` or the arguments do not fit it."""
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
        """Set argument `index`, unless another thread enqueues the launch at that time."""
        is_local = isinstance(arg, LocalBytes)
        if isinstance(arg, BufferSlice):
            self._set_pointer(index, arg)
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

    def _set_pointer(self, index: int, region: BufferSlice) -> None:
        call = find_set_pointer()
        assert call is not None, "BufferSlice needs clSetKernelArgSVMPointer"
        if code := call(self._handle, ctypes.c_uint32(index), ctypes.c_void_p(region.address)):
            doing = f"Setting argument {index} of {self.label}"
            raise describe_code(code, "clSetKernelArgSVMPointer", doing, self._device)

    def update(self, args: Sequence[KernelArg], grid: Grid, group: Grid | None) -> None:
        """Set the arguments that differ, and the sizes; restrictions as for `set_arg`."""
        for i, wanted in _changes(self._args, args):
            self.set_arg(i, wanted)
        self.grid, self.group = grid, group

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The current arguments."""
        return tuple(self._args)

    def changed_since(self, before: Sequence[Any]) -> list[tuple[int, Any]]:
        """(index, value) of arguments that differ from `before`, an earlier `arguments`."""
        return _changes(before, self._args)

    def release_arguments(self) -> None:
        """Release the memory of all arguments. `update` must set new ones before the next enqueue."""
        self._args = [None] * len(self._args)

    @property
    def is_empty(self) -> bool:
        """Return whether a global size is zero: nothing to compute, and drivers refuse it."""
        return not all(self.grid)

    def enqueue(self, queue: cl.CommandQueue) -> cl.Event | None:
        """Enqueue once; returns the event, None for an empty launch."""
        if self.is_empty:
            return None
        self._counters.enqueues += 1
        try:
            return cl.enqueue_nd_range_kernel(queue, self.kernel.wrapped, self.grid, self.group)
        except cl.Error as e:
            raise translate(e, self.describe(), self._device) from e

    def work_group_limit(self, device: cl.Device) -> int:
        """Largest work-group size of this kernel on `device` (CL_KERNEL_WORK_GROUP_SIZE)."""
        if self._limit is None:
            with cl_errors(f"Asking for the work-group limit of {self.label}", self._device):
                self._limit = int(
                    self.kernel.wrapped.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
                )
        return self._limit

    def fit_group(self, device: cl.Device) -> None:
        """Divide the work-group size until the kernel's registers and local memory suffice.

        Divides the outer axes first: neighbours along the first axis share their reads.
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
        """Description for errors."""
        return f"Launching {self.label} with global size {self.grid} and work-group {self.group}"


def _changes(before: Sequence[Any], now: Sequence[Any]) -> list[tuple[int, Any]]:
    pairs = enumerate(zip(now, before, strict=True))
    return [(i, wanted) for i, (wanted, held) in pairs if wanted is not held and not _is_equal(wanted, held)]


def _is_equal(wanted: KernelArg, held: Any) -> bool:
    """Return whether setting the argument again would change nothing."""
    if isinstance(wanted, np.generic):
        return type(held) is type(wanted) and held.tobytes() == wanted.tobytes()  # by bytes: 0.0 and -0.0 differ
    return isinstance(wanted, LocalBytes) and wanted == held


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
        replay: Replay | None = None,
    ) -> None:
        self.launches = [launch for launch in launches if not launch.is_empty]
        self.refusal = ""
        self._queue = queue
        self._device = device
        self._counters = counters
        self._flush = flush_every > 0
        self._replay = replay if replay is not None and len(self.launches) >= replay.min_launches else None
        self._buffer: RecordedLaunches | None = None
        self._has_run = False
        self._is_stale = False  # arguments were set since the recording
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
        """Return whether runs after the first are replays."""
        return self._replay is not None

    def invalidate(self) -> None:
        """Update or drop the recording at the next run; call this after setting an argument of a launch."""
        if self._buffer is not None and self._buffer.can_update:
            self._is_stale = True
        else:
            self._buffer, self._has_run = None, False

    def run(self) -> bool:
        """Enqueue every launch without waiting; returns whether it was a replay.

        Raises DeviceError that names the launch which the driver refused.
        """
        # Recording after a plain run: it pays only for repeated runs, and PoCL 5.0 crashes on recording launches that
        # cannot run.
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
