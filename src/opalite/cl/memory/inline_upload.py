"""InlineUpload: small pieces of memory brought to a device, and about it, as the argument of one launch.

NVIDIA's driver (580.159) has the host wait for the queue in each clEnqueueWriteBuffer and clEnqueueReadBuffer, also of
pinned memory and where nobody asked to wait: 9 and 13 µs a call on an H200, in which the device stands still, and runs
cannot go ahead of the host. A launch behind another takes 3.3 µs, and its argument may have 4 KB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ..device.driver_errors import cl_errors, describe_code
from ..queue.raw_opencl_calls import enqueue_args, find_enqueue, find_set_arg
from .device_pointers import BufferSlice

if TYPE_CHECKING:
    from ..runtime import Runtime

Array = np.ndarray[Any, Any]

PIECES = 16
"""Of one launch."""
_MOST = 4096  # bytes of an argument
_LARGEST = 2  # launches for one piece, for which a write takes as long
_ITEMS = 256
_WORD = 4
_SOURCE = """
typedef struct { ulong to, from; uint at, nbytes; } Piece;
typedef struct { ulong count; Piece pieces[PIECES]; uint load[WORDS]; } Freight;

kernel void carry(const Freight freight) {
    const uint item = get_local_id(0);
    for (ulong p = 0; p < freight.count; ++p) {
        global uint *to = (global uint *)freight.pieces[p].to;
        global const uint *from = (global const uint *)freight.pieces[p].from;
        const uint at = freight.pieces[p].at, nbytes = freight.pieces[p].nbytes, words = nbytes / 4, rest = nbytes % 4;
        for (uint i = item; i < words; i += ITEMS) to[i] = from ? from[i] : freight.load[at + i];
        if (item < rest) {
            const uint last = from ? 0 : freight.load[at + words] >> (8 * item);
            ((global uchar *)(to + words))[item] = from ? ((global const uchar *)(from + words))[item] : (uchar)last;
        }
    }
}
"""


class InlineUpload:
    """Pieces are collected by `add_host` and `move`, whose targets are all different, and on their way once `send` is
    called: behind what is on the queue, before what comes on it."""

    def __init__(self, rt: Runtime) -> None:
        """For devices where memory is known by its address (cl/memory/device_pointers.py)."""
        self._rt = rt
        head = 8 + PIECES * 24
        self._room = (min(_MOST, rt.device.max_parameter_size - 64) - head) // 8 * 8  # bytes of a launch
        layout = np.dtype(
            [
                ("count", "u8"),
                ("pieces", [("to", "u8"), ("from", "u8"), ("at", "u4"), ("nbytes", "u4")], (PIECES,)),
                ("load", "u1", (self._room,)),
            ]
        )
        self._freight = np.zeros(1, layout)
        self._pieces, self._load = self._freight["pieces"][0], self._freight["load"][0]
        self._count = self._used = 0
        self._known: dict[int, tuple[Any, int]] = {}  # addresses; what lies there is kept

    def accepts(self, nbytes: int) -> bool:
        """Whether that is so little that it is rather carried than written."""
        return bool(nbytes <= _LARGEST * self._room)

    def add_host(self, target: cl.Buffer | BufferSlice, data: Array, offset: int = 0) -> None:
        """The bytes of a C-contiguous array to `target` from byte `offset` on, a multiple of 4."""
        data = data.reshape(-1).view(np.uint8)
        at = 0
        while at < data.size:
            if self._count == PIECES or self._room - self._used < _WORD:
                self.flush()
            part = data[at : at + self._room - self._used]
            self._load[self._used : self._used + part.size] = part
            self._add(self._address(target) + offset + at, 0, self._used // _WORD, part.size)
            self._used += -(-part.size // _WORD) * _WORD
            at += part.size

    def add_device(
        self, source: cl.Buffer | BufferSlice, target: cl.Buffer | BufferSlice, nbytes: int, offset: int = 0
    ) -> None:
        """The first bytes of `source` to `target` from byte `offset` on."""
        if nbytes:
            if self._count == PIECES:
                self.flush()
            self._add(self._address(target) + offset, self._address(source), 0, nbytes)

    def flush(self) -> None:
        """Enqueue what was collected."""
        if not self._count:
            return
        self._freight["count"][0] = self._count
        self._count = self._used = 0
        with cl_errors("Carrying small values", self._rt.info.name):
            if code := self._enqueue():
                raise describe_code(code, "clEnqueueNDRangeKernel", "Carrying small values", self._rt.info.name)
        self._rt.counters.enqueues += 1

    @cached_property
    def _enqueue(self) -> Callable[[], int]:
        """Sets the argument and enqueues the launch; the driver's code."""
        options = f"-DPIECES={PIECES} -DWORDS={self._room // _WORD} -DITEMS={_ITEMS}"
        kernel = cl.Kernel(self._rt.build(_SOURCE, options, "courier"), "carry")
        set_arg, enqueue = find_set_arg(), find_enqueue()
        handle, data, nbytes = kernel.int_ptr, self._freight.ctypes.data, self._freight.nbytes
        argument = ctypes.c_void_p(handle), ctypes.c_uint32(0), ctypes.c_size_t(nbytes), ctypes.c_void_p(data)
        launch = enqueue_args(self._rt.queue, kernel, (_ITEMS,), (_ITEMS,))

        def call() -> int:
            if set_arg is None or enqueue is None:
                kernel.set_args(self._freight[0])
                cl.enqueue_nd_range_kernel(self._rt.queue, kernel, (_ITEMS,), (_ITEMS,))
                return 0
            return set_arg(*argument) or enqueue(*launch)  # through pyopencl both take 30 µs

        return call

    def _add(self, *piece: int) -> None:
        self._pieces[self._count] = piece
        self._count += 1

    def _address(self, memory: cl.Buffer | BufferSlice) -> int:
        if isinstance(memory, BufferSlice):
            return memory.address
        if id(memory) not in self._known:  # what waits for the queue, once
            self._known[id(memory)] = memory, self._rt.addresses_of([memory])[0]
        return self._known[id(memory)][1]
