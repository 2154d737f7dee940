"""InlineUpload: small uploads and device copies, batched into the argument of one kernel launch.

With NVIDIA's driver (580.159) every clEnqueueWriteBuffer and clEnqueueReadBuffer blocks the host until the queue is
empty, 9 and 13 µs on an H200, even from pinned memory and without blocking flag. So the device idles and the host
cannot enqueue runs ahead. The kernel's launch takes 3.3 µs, and its argument has up to 4 KB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyopencl as cl

from ..device.driver_errors import cl_errors, describe_code
from ..queue.raw_opencl_calls import enqueue_args, find_enqueue, find_set_arg
from ..runtime import Runtime
from .device_pointers import BufferSlice

Array = np.ndarray[Any, Any]

PIECES = 16
"""Copies of one launch."""
_MAX_ARGUMENT_BYTES = 4096
_MAX_LAUNCHES = 2  # of one copy: more take longer than a buffer write
_ITEMS = 256
_WORD = 4
_SOURCE = """
typedef struct { ulong to, from; uint at, nbytes; } Piece;
typedef struct { ulong count; Piece pieces[PIECES]; uint data[WORDS]; } Uploads;

kernel void inline_upload(const Uploads uploads) {
    const uint item = get_local_id(0);
    for (ulong p = 0; p < uploads.count; ++p) {
        global uint *to = (global uint *)uploads.pieces[p].to;
        global const uint *from = (global const uint *)uploads.pieces[p].from;
        const uint at = uploads.pieces[p].at, nbytes = uploads.pieces[p].nbytes, words = nbytes / 4, rest = nbytes % 4;
        for (uint i = item; i < words; i += ITEMS) to[i] = from ? from[i] : uploads.data[at + i];
        if (item < rest) {
            const uint last = from ? 0 : uploads.data[at + words] >> (8 * item);
            ((global uchar *)(to + words))[item] = from ? ((global const uchar *)(from + words))[item] : (uchar)last;
        }
    }
}
"""


class InlineUpload:
    """Collects copies with disjoint targets by `add_host` and `add_device`; `flush` enqueues them, in queue order."""

    def __init__(self, rt: Runtime) -> None:
        """Needs a device with buffer addresses (device_pointers.py)."""
        self._rt = rt
        head = 8 + PIECES * 24
        # Data bytes of a launch.
        self._capacity = (min(_MAX_ARGUMENT_BYTES, rt.device.max_parameter_size - 64) - head) // 8 * 8
        layout = np.dtype(
            [
                ("count", "u8"),
                ("pieces", [("to", "u8"), ("from", "u8"), ("at", "u4"), ("nbytes", "u4")], (PIECES,)),
                ("data", "u1", (self._capacity,)),
            ]
        )
        self._argument = np.zeros(1, layout)
        self._pieces, self._data = self._argument["pieces"][0], self._argument["data"][0]
        self._count = self._used = 0
        self._known: dict[int, tuple[Any, int]] = {}  # addresses by id of the buffer, which is kept alive

    def accepts(self, nbytes: int) -> bool:
        """Return whether a copy of `nbytes` is faster inline than by a buffer write."""
        return bool(nbytes <= _MAX_LAUNCHES * self._capacity)

    def add_host(self, target: cl.Buffer | BufferSlice, data: Array, offset: int = 0) -> None:
        """Add a copy of a C-contiguous array to `target` at byte `offset`, a multiple of 4."""
        data = data.reshape(-1).view(np.uint8)
        at = 0
        while at < data.size:
            if self._count == PIECES or self._capacity - self._used < _WORD:
                self.flush()
            part = data[at : at + self._capacity - self._used]
            self._data[self._used : self._used + part.size] = part
            self._add(self._address(target) + offset + at, 0, self._used // _WORD, part.size)
            self._used += -(-part.size // _WORD) * _WORD
            at += part.size

    def add_device(
        self, source: cl.Buffer | BufferSlice, target: cl.Buffer | BufferSlice, nbytes: int, offset: int = 0
    ) -> None:
        """Add a copy of the first `nbytes` of `source` to `target` at byte `offset`."""
        if nbytes:
            if self._count == PIECES:
                self.flush()
            self._add(self._address(target) + offset, self._address(source), 0, nbytes)

    def flush(self) -> None:
        """Enqueue the collected copies."""
        if not self._count:
            return
        self._argument["count"][0] = self._count
        self._count = self._used = 0
        with cl_errors("Uploading small values", self._rt.info.title):
            if code := self._enqueue():
                raise describe_code(code, "clEnqueueNDRangeKernel", "Uploading small values", self._rt.info.title)
        self._rt.counters.enqueues += 1

    @cached_property
    def _enqueue(self) -> Callable[[], int]:
        """A function that sets the argument and enqueues the launch; returns the driver's status code."""
        options = f"-DPIECES={PIECES} -DWORDS={self._capacity // _WORD} -DITEMS={_ITEMS}"
        self._kernel = kernel = cl.Kernel(self._rt.build(_SOURCE, options, "inline upload"), "inline_upload")
        set_arg, enqueue = find_set_arg(), find_enqueue()
        handle, data, nbytes = kernel.int_ptr, self._argument.ctypes.data, self._argument.nbytes
        argument = ctypes.c_void_p(handle), ctypes.c_uint32(0), ctypes.c_size_t(nbytes), ctypes.c_void_p(data)
        launch = enqueue_args(self._rt.queue, kernel, (_ITEMS,), (_ITEMS,))
        assert set_arg is not None, "buffer addresses need the loader's calls"
        assert enqueue is not None
        return lambda: set_arg(*argument) or enqueue(*launch)  # through pyopencl both take 30 µs

    def _add(self, *piece: int) -> None:
        self._pieces[self._count] = piece
        self._count += 1

    def _address(self, memory: cl.Buffer | BufferSlice) -> int:
        if isinstance(memory, BufferSlice):
            return memory.address
        if id(memory) not in self._known:  # waits for the queue, once for each buffer
            self._known[id(memory)] = memory, self._rt.addresses_of([memory])[0]
        return self._known[id(memory)][1]
