"""Pinned host memory, and the zero-copy probe of CPU devices.

A CPU device works on host memory itself: a transfer is a plain copy instead of a queue command, which costs 16 to 50 µs
on PoCL (docs/running.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from ...ir.device.device_info import DeviceInfo
from ..device.driver_errors import cl_errors
from .host_device_copies import PAGE, aligned_bytes

Array = np.ndarray[Any, Any]


def pinned_bytes(context: cl.Context, queue: cl.CommandQueue, info: DeviceInfo, nbytes: int) -> Array:
    """Zeroed, page-locked host memory, from which the device copies directly; ordinary memory for CPU devices.

    The driver copies other arrays twice: an H200 reads them at 11 GB/s, and pinned memory at 54. The memory is a
    permanently mapped OpenCL buffer, which the array keeps alive.
    """
    if info.on_host or info.unified_memory or not nbytes:
        return aligned_bytes(nbytes)
    flags, access = cl.mem_flags, cl.map_flags.READ | cl.map_flags.WRITE
    with cl_errors(f"Reserving {nbytes} bytes of host memory", info.title):
        buffer = cl.Buffer(context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, nbytes)
        array: Array
        array, _ = cl.enqueue_map_buffer(queue, buffer, access, 0, nbytes, np.uint8, is_blocking=True)
    array[:] = 0
    return array


def shares_memory(context: cl.Context, queue: cl.CommandQueue, is_cpu: bool) -> bool:
    """Probe whether a CL_MEM_USE_HOST_PTR buffer is zero-copy: host and device see each other's writes without mapping.

    OpenCL guarantees that only for mapped memory, so both directions are tested.
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
