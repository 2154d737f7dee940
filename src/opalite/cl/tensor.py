"""Memory that values cross between host and device through, and arrays that stay on the device.

A CPU device works on host memory itself: there a value crosses by a plain copy, without a command on the queue, which
on PoCL costs 16 to 50 µs each (docs/running.md). `shares_memory` finds out by trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ..errors import DeviceError
from .failures import cl_errors
from .forks import check_fork, keep_in_children

if TYPE_CHECKING:
    from .runtime import Runtime

Array = np.ndarray[Any, Any]
_PAGE = 4096


def aligned_bytes(nbytes: int, alignment: int = _PAGE) -> Array:
    """Zeroed host memory that starts at a multiple of `alignment`."""
    raw = np.zeros(nbytes + alignment, np.uint8)
    start = -raw.__array_interface__["data"][0] % alignment
    return raw[start : start + nbytes]


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
    host = aligned_bytes(_PAGE)
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


class Crossing:
    """A buffer of `nbytes` that arrays are written to and read from; `buffer` is what kernels are given.

    The caller sees to it that no enqueued launch uses the buffer at that time.
    """

    __slots__ = ("__weakref__", "_host", "_rt", "buffer", "nbytes")

    def __init__(self, rt: Runtime, nbytes: int, buffer: cl.Buffer | None = None) -> None:
        """Memory of its own unless there is a `buffer`. DeviceMemoryError if there is no room."""
        check_fork()
        keep_in_children(self)
        self._rt = rt
        self._host: Array | None = None
        self.nbytes = nbytes
        if buffer is None and nbytes and rt.shares_memory:
            self._host = aligned_bytes(nbytes)
            buffer = rt.memory.wrapped(self._host, writable=True)
            if buffer is None:
                self._host = None
        self.buffer = rt.allocate(nbytes) if buffer is None else buffer

    def write(self, array: Any, dtype: np.dtype[Any], queue: cl.CommandQueue | None = None) -> Any:
        """Store `array` as `dtype`, row by row. What is returned must be kept until the queue has finished."""
        source = np.asarray(array)
        if source.size == 0:
            return None
        if self._host is None:
            return self._rt.write(self.buffer, np.ascontiguousarray(source, dtype), wait=False, queue=queue)
        self._rt.counters.transfers += 1
        np.copyto(
            self._host[: source.size * dtype.itemsize].view(dtype).reshape(source.shape), source, casting="unsafe"
        )
        return None

    def shared(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Array | None:
        """The memory as a row-major array, which is not empty, where host and device share it."""
        nbytes = math.prod(shape) * dtype.itemsize
        if self._host is None or not nbytes:
            return None
        return self._host[:nbytes].view(dtype).reshape(tuple(shape))

    def read(self, array: Array, queue: cl.CommandQueue | None = None) -> Any:
        """Fill the C-contiguous `array`. What is returned must be kept until the queue has finished."""
        if array.size == 0:
            return None
        if self._host is None:
            return self._rt.read(self.buffer, array, wait=False, queue=queue)
        self._rt.counters.transfers += 1
        np.copyto(array, self._host[: array.nbytes].view(array.dtype).reshape(array.shape))
        return None


class DeviceTensor:
    """A row-major array of `shape` and `dtype` in device memory, for the sessions of one runtime.

    NumPy takes it for an array, at the cost of a transfer.
    """

    __slots__ = ("crossing", "dtype", "rt", "shape")

    def __init__(
        self, rt: Runtime, shape: Sequence[int], dtype: np.dtype[Any], buffer: cl.Buffer | None = None
    ) -> None:
        """Zeros, or what `buffer` holds. DeviceMemoryError if there is no room."""
        self.rt = rt
        self.shape = tuple(int(d) for d in shape)
        self.dtype = dtype
        self.crossing = Crossing(rt, self.nbytes, buffer)

    @classmethod
    def over(cls, rt: Runtime, crossing: Crossing, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceTensor:
        """A tensor in memory that exists, as long as that holds what it holds."""
        tensor = cls.__new__(cls)
        tensor.rt, tensor.shape, tensor.dtype, tensor.crossing = rt, tuple(shape), dtype, crossing
        return tensor

    @property
    def buffer(self) -> cl.Buffer:
        """The memory, as kernels take it."""
        return self.crossing.buffer

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

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
        self._cross(lambda: self.crossing.write(array, self.dtype, self.rt.transfer_queue))

    def copy_from(self, other: DeviceTensor) -> None:
        """Enqueue a copy of `other`, of the same size and runtime, into this one."""
        self.rt.copy(other.buffer, self.buffer, self.nbytes)

    def numpy(self) -> Array:
        """The contents as a new array; launches that run must not write this tensor, as with `write`."""
        array: Array = np.empty(self.shape, self.dtype)
        self._cross(lambda: self.crossing.read(array, self.rt.transfer_queue))
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
