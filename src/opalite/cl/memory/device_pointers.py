"""Arguments by address: parts of a buffer that launches take at no cost, where a driver lets a pointer be any address.

NVIDIA's driver (580.159) takes 15 µs for a launch on sub-buffers that overlap others, and 5 on whole buffers; whole
buffers from a pool take up to twice the memory of an arena, and no tensor can lie within another. But
clSetKernelArgSVMPointer, which is meant for shared virtual memory, takes the address of any byte of the device's memory
there, as fast as a buffer. A kernel tells where a buffer begins. Nothing in OpenCL promises this, so it is tried before
it is relied upon, and only where sub-buffers are slow.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import numpy as np
import pyopencl as cl

from ..queue.raw_opencl_calls import find_set_pointer

_TELL = "kernel void tell(global char *x, global ulong *at, int i) { at[i] = (ulong)x; }"
_TRIAL = "kernel void trial(global const int *x, global int *y) { *y += *x; }"


class BufferSlice:
    """`nbytes` of `buffer` from byte `offset` on, which kernels take by their address. Keeps the buffer."""

    __slots__ = ("address", "buffer", "nbytes", "offset")

    def __init__(self, buffer: cl.Buffer, start: int, offset: int, nbytes: int) -> None:
        """start: the address of the buffer's first byte on the device."""
        self.buffer = buffer
        self.address = start + offset
        self.offset = offset
        self.nbytes = nbytes


def buffer_and_offset(memory: cl.Buffer | BufferSlice, offset: int) -> tuple[cl.Buffer, int]:
    """The buffer in which byte `offset` of `memory` lies, and where."""
    return (memory.buffer, memory.offset + offset) if isinstance(memory, BufferSlice) else (memory, offset)


class AddressProbe:
    """Tells where buffers begin on a device."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        """Raises pyopencl's errors, as `find` does."""
        self._queue = queue
        program = cl._Program(queue.context, _TELL)
        program._build(b"", [queue.device])
        self._kernel = cl.Kernel(program, "tell")
        self._lock = threading.Lock()

    def find(self, buffers: Sequence[cl.Buffer]) -> list[int]:
        """The addresses of the first bytes of `buffers`. Waits for the queue."""
        found = np.zeros(max(len(buffers), 1), np.uint64)
        at = cl.Buffer(self._queue.context, cl.mem_flags.READ_WRITE, found.nbytes)
        with self._lock:
            for i, buffer in enumerate(buffers):
                self._kernel.set_args(buffer, at, np.int32(i))
                cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), None)
            cl.enqueue_copy(self._queue, found, at)
        return [int(n) for n in found[: len(buffers)]]


def supports_device_pointers(device: cl.Device) -> bool:
    """Whether launches on `device` read and write where an address given as SVM pointer says."""
    point = find_set_pointer()
    if point is None:
        return False
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        program = cl._Program(context, _TRIAL)
        program._build(b"", [device])
        numbers = np.arange(1000, 1256, dtype=np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=numbers)
        (start,) = AddressProbe(queue).find([buffer])
        kernel = cl.Kernel(program, "trial")
        pairs = ((4, 8), (8, 200), (200, 8))
        for source, target in pairs:
            for i, number in enumerate((source, target)):
                if point(ctypes.c_void_p(kernel.int_ptr), ctypes.c_uint32(i), ctypes.c_void_p(start + 4 * number)):
                    return False
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
            numbers[target] += numbers[source]
        got = np.empty_like(numbers)
        cl.enqueue_copy(queue, got, buffer)
    except cl.Error:
        return False
    return bool(np.array_equal(got, numbers))
