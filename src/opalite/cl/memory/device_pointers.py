"""BufferSlice: kernel arguments by device address (clSetKernelArgSVMPointer), for drivers with slow sub-buffers.

With NVIDIA's driver (580.159) a launch on overlapping sub-buffers takes 15 µs, on whole buffers 5. Whole buffers take
up to twice the memory of an arena and allow no aliasing. That driver accepts any device address as SVM pointer, as fast
as a buffer; a kernel reads the base addresses of buffers. OpenCL does not guarantee that device addresses are accepted,
so a probe tests them, on devices with slow sub-buffers only.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import numpy as np
import pyopencl as cl

from ..queue.raw_opencl_calls import find_set_pointer

ADDRESS_SOURCE = "kernel void tell(global char *x, global ulong *at, int i) { at[i] = (ulong)x; }"
_PROBE = "kernel void trial(global const int *x, global int *y) { *y += *x; }"


class BufferSlice:
    """`nbytes` of `buffer` from byte `offset` on, a kernel argument by address. Keeps the buffer alive."""

    __slots__ = ("address", "buffer", "nbytes", "offset")

    def __init__(self, buffer: cl.Buffer, start: int, offset: int, nbytes: int) -> None:
        """start: device address of the buffer."""
        self.buffer = buffer
        self.address = start + offset
        self.offset = offset
        self.nbytes = nbytes


def buffer_and_offset(memory: cl.Buffer | BufferSlice, offset: int) -> tuple[cl.Buffer, int]:
    """The buffer that contains byte `offset` of `memory`, and the offset in that buffer."""
    return (memory.buffer, memory.offset + offset) if isinstance(memory, BufferSlice) else (memory, offset)


class AddressProbe:
    """A kernel that returns the device addresses of buffers."""

    def __init__(self, queue: cl.CommandQueue, program: cl._Program | None = None) -> None:
        """program: of ADDRESS_SOURCE, built now if None. Raises pyopencl's errors, as does `find`."""
        self._queue = queue
        if program is None:
            program = cl._Program(queue.context, ADDRESS_SOURCE)
            program._build(b"", [queue.device])
        self._kernel = cl.Kernel(program, "tell")
        self._lock = threading.Lock()

    def find(self, buffers: Sequence[cl.Buffer]) -> list[int]:
        """Device addresses of `buffers`. Waits for the queue."""
        found = np.zeros(max(len(buffers), 1), np.uint64)
        at = cl.Buffer(self._queue.context, cl.mem_flags.READ_WRITE, found.nbytes)
        with self._lock:
            for i, buffer in enumerate(buffers):
                self._kernel.set_args(buffer, at, np.int32(i))
                cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), None)
            cl.enqueue_copy(self._queue, found, at)
        return [int(n) for n in found[: len(buffers)]]


def supports_device_pointers(device: cl.Device) -> bool:
    """Probe whether kernels on `device` read and write through addresses passed as SVM pointers."""
    set_pointer = find_set_pointer()
    if set_pointer is None:
        return False
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        program = cl._Program(context, _PROBE)
        program._build(b"", [device])
        numbers = np.arange(1000, 1256, dtype=np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=numbers)
        (start,) = AddressProbe(queue).find([buffer])
        kernel = cl.Kernel(program, "trial")
        pairs = ((4, 8), (8, 200), (200, 8))
        for source, target in pairs:
            for i, number in enumerate((source, target)):
                if set_pointer(
                    ctypes.c_void_p(kernel.int_ptr), ctypes.c_uint32(i), ctypes.c_void_p(start + 4 * number)
                ):
                    return False
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
            numbers[target] += numbers[source]
        got = np.empty_like(numbers)
        cl.enqueue_copy(queue, got, buffer)
    except cl.Error:
        return False
    return bool(np.array_equal(got, numbers))
