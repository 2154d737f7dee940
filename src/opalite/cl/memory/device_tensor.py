"""Arrays that stay on the device, and host memory that it reaches by itself.

A CPU device works on host memory itself: there a value crosses by a plain copy, without a command on the queue, which
on PoCL costs 16 to 50 µs each (docs/running.md). `shares_memory` finds out by trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ...errors import DeviceError
from ..device.driver_errors import cl_errors
from ..device.fork_guard import check_fork
from .host_device_copies import PAGE, StagingBuffer, aligned_bytes

if TYPE_CHECKING:
    from ..runtime import Runtime

Array = np.ndarray[Any, Any]


def pinned_bytes(rt: Runtime, nbytes: int) -> Array:
    """Zeroed bytes of host memory that stay where they are, so that the device can copy them by itself.

    Arrays of the caller's own are copied twice: into such memory of the driver's first (an H200 gets 11 GB/s from them,
    54 from these). OpenCL has them as a buffer that is mapped for good; the array keeps it. Plain memory on a CPU.
    """
    if rt.info.on_host or rt.info.unified_memory or not nbytes:
        return aligned_bytes(nbytes)
    flags, access = cl.mem_flags, cl.map_flags.READ | cl.map_flags.WRITE
    with cl_errors(f"Reserving {nbytes} bytes of host memory", rt.info.name):
        buffer = cl.Buffer(rt.context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, nbytes)
        array: Array
        array, _ = cl.enqueue_map_buffer(rt.queue, buffer, access, 0, nbytes, np.uint8, is_blocking=True)
    array[:] = 0
    return array


def shares_memory(context: cl.Context, queue: cl.CommandQueue, is_cpu: bool) -> bool:
    """Whether a buffer made of host memory is that memory: what either side writes, the other reads at once.

    OpenCL wants such memory mapped before the host touches it, since a device may keep a copy. Both ways are tried.
    """
    if not is_cpu:
        return False
    host = aligned_bytes(PAGE)
    got = np.zeros_like(host)
    flags = cl.mem_flags
    try:
        shared = cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=host)
        other = cl.Buffer(context, flags.READ_WRITE, host.nbytes)
        cl.enqueue_fill_buffer(queue, shared, np.uint8(7), 0, host.nbytes)
        queue.finish()
        if not np.all(host == 7):
            return False
        host[:] = 9
        cl.enqueue_copy(queue, other, shared, byte_count=host.nbytes)
        cl.enqueue_copy(queue, got, other)
    except cl.Error:
        return False
    return bool(np.all(got == 9))


class DeviceTensor:
    """A row-major array of `shape` and `dtype` in device memory, for the sessions of one runtime.

    NumPy takes it for an array, at the cost of a transfer.
    """

    __slots__ = ("dtype", "rt", "shape", "staging")

    def __init__(
        self, rt: Runtime, shape: Sequence[int], dtype: np.dtype[Any], buffer: cl.Buffer | None = None
    ) -> None:
        """Zeros, or what `buffer` holds. DeviceMemoryError if there is no room."""
        self.rt = rt
        self.shape = tuple(int(d) for d in shape)
        self.dtype = dtype
        self.staging = StagingBuffer(rt, self.nbytes, buffer)

    @classmethod
    def over(cls, rt: Runtime, staging: StagingBuffer, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceTensor:
        """A tensor in memory that exists, as long as that holds what it holds."""
        tensor = cls.__new__(cls)
        tensor.rt, tensor.shape, tensor.dtype, tensor.staging = rt, tuple(shape), dtype, staging
        return tensor

    @property
    def buffer(self) -> cl.Buffer:
        """The memory, as kernels take it."""
        return self.staging.buffer

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.size * int(self.dtype.itemsize)

    def write(self, array: Any) -> None:
        """Store `array`, whose shape must be this one's, and wait until that is done.

        Where there is a queue for transfers, launches go on meanwhile: those that run must not use this tensor.
        """
        self._cross(lambda: self.staging.write(array, self.dtype, self.rt.transfer_queue))

    def copy_from(self, other: DeviceTensor) -> None:
        """Enqueue a copy of `other`, of the same size and runtime, into this one."""
        self.rt.copy(other.buffer, self.buffer, self.nbytes)

    def numpy(self) -> Array:
        """The contents as a new array; launches that run must not write this tensor, as with `write`."""
        array: Array = np.empty(self.shape, self.dtype)
        self._cross(lambda: self.staging.read(array, self.rt.transfer_queue))
        return array

    def _cross(self, move: Callable[[], Any]) -> None:
        check_fork()
        rt = self.rt
        if rt.transfer_queue is rt.queue:
            rt.finish()
        pending = move()
        with cl_errors("Waiting for a transfer", rt.info.name):
            rt.transfer_queue.finish()
        del pending

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)


def wrap_handle(rt: Runtime, handle: int, nbytes: int) -> cl.Buffer:
    """The buffer whose cl_mem is `handle`, of this runtime's context, holding `nbytes` at least.

    DeviceError if it is of another context or too small.
    """
    with cl_errors(f"Looking at the memory object {handle:#x}", rt.info.name):
        buffer = cl.Buffer.from_int_ptr(handle, True)
        if buffer.context != rt.context:
            raise DeviceError(
                f"memory object {handle:#x} belongs to another OpenCL context than {rt.info.name}'s: "
                "make it on the context of this session"
            )
        if buffer.size < nbytes:
            raise DeviceError(f"memory object {handle:#x} has {buffer.size} bytes, {nbytes} are needed")
    return buffer
