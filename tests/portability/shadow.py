"""What Oclgrind's search for uninitialised values needs of the host to be right about global memory.

Oclgrind 21.10 keeps a shadow of each buffer that says which bytes were written. A host write (a copy or a fill too)
makes that shadow anew in the size of the write, so that after a partial one the rest of the buffer counts as never
written, and the bytes of an unaligned part as anything; memory that was given free leaves its shadow to the next buffer
in its place; memory shared with the host has none. `faults/oclgrind_shadow.py` shows each. Kernels' own writes are
followed exactly. So here, in processes that test under it:

- a buffer's shadow is made when the buffer is, by a kernel that takes it and does nothing, and no buffer is let go;
- a host write of less than a whole buffer goes to a staging buffer first, from where a kernel copies it;
- memory of the host is mapped for writing, which marks all of it, and is not written past OpenCL.

Texels always count as written.
"""

from __future__ import annotations

import functools
import os
import subprocess
from typing import Any

import numpy as np
import pyopencl as cl

from opalite.cl.memory import allocator, host_device_copies, host_memory
from opalite.cl.memory.allocator import Allocator
from opalite.cl.memory.device_pointers import buffer_and_offset
from opalite.cl.memory.host_device_copies import Transfers
from opalite.run.execute import single_node_executable

_SOURCE = """
kernel void nothing(global uchar *x) {}
kernel void put_bytes(global const uchar *from, global uchar *to, ulong source, ulong at, ulong begin, ulong end) {
    const ulong i = begin + get_global_id(0);
    if (i < end) to[at + i] = from[source + i];
}
kernel void put_runs(global const uchar *from, global uchar *to, ulong source, ulong at) {
    const ulong i = 64 * get_global_id(0);
    for (uint k = 0; k < 4; ++k) vstore16(vload16(k, from + source + i), k, to + at + i);
}
"""
_RUN = 64  # bytes that one work-item of put_runs copies

_programs: dict[int, Any] = {}
_staging: dict[tuple[int, int], cl.Buffer] = {}
_kept: list[cl.MemoryObject] = []


def exactly() -> None:
    """Have kernel tests allocate what tensors have to the byte, so that no access past an end goes unseen."""
    allocator._MIN_BYTES = 1
    single_node_executable.GUARD = 0


def follow_host_writes() -> None:
    """Have this process's Opalite write so that shadows are right."""
    allocate, wrap, make_image = Allocator.buffer, Allocator.wrapped, Allocator.image

    def buffer(self: Allocator, nbytes: int, **how: Any) -> cl.Buffer:
        made = allocate(self, nbytes, **how)
        _keep(made)
        queue = cl.CommandQueue(self.context)
        _kernel(self.context, "nothing")(queue, (1,), None, made)
        queue.finish()
        return made

    def image(self: Allocator, *size: Any) -> cl.Image:
        made = make_image(self, *size)
        _keep(made)
        return made

    def wrapped(self: Allocator, array: Any, *, writable: bool = False) -> cl.Buffer | None:
        made = wrap(self, array, writable=writable)
        if made is not None:
            _keep(made)
            _mark(cl.CommandQueue(self.context), made)
        return made

    def write(
        self: Transfers, buffer: Any, array: Any, offset: int = 0, wait: bool = True, queue: Any = None
    ) -> cl.Event | None:
        self.counters.transfers += 1
        if array.nbytes == 0:
            return None
        target, start = buffer_and_offset(buffer, offset)
        return _write(queue or self.queue, target, host_device_copies._contiguous(array), start)

    def fill(self: Transfers, buffer: Any, byte: int, nbytes: int, offset: int = 0) -> None:
        self.counters.transfers += 1
        if nbytes:
            target, start = buffer_and_offset(buffer, offset)
            _write(self.queue, target, np.full(nbytes, byte, np.uint8), start)

    def copy(
        self: Transfers, source: Any, target: Any, nbytes: int, source_offset: int = 0, target_offset: int = 0
    ) -> None:
        self.counters.transfers += 1
        if nbytes:
            source, first = buffer_and_offset(source, source_offset)
            target, start = buffer_and_offset(target, target_offset)
            _put(self.queue, source, target, nbytes, first, start)

    for name, function in (("buffer", buffer), ("image", image), ("wrapped", wrapped)):
        setattr(Allocator, name, function)
    for name, function in (("write", write), ("fill", fill), ("copy", copy)):
        setattr(Transfers, name, function)
    host_memory.shares_memory = lambda *_: False
    _spare_children()


def _spare_children() -> None:
    """Processes that tests start do not do all this, so that they run without the search."""
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def started(self: Any, *args: Any, env: Any = None, **kwargs: Any) -> None:
        start(self, *args, env={**(os.environ if env is None else env), "OCLGRIND_UNINITIALIZED": "0"}, **kwargs)

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]


def _write(queue: cl.CommandQueue, buffer: cl.Buffer, array: Any, offset: int) -> cl.Event:
    if offset == 0 and array.nbytes == buffer.size and buffer.associated_memobject is None:
        return cl.enqueue_copy(queue, buffer, array)
    key = (queue.context.int_ptr, array.nbytes)
    if key not in _staging:
        _staging[key] = cl.Buffer(queue.context, cl.mem_flags.READ_ONLY, array.nbytes)
    cl.enqueue_copy(queue, _staging[key], array)
    return _put(queue, _staging[key], buffer, array.nbytes, 0, offset)


def _put(
    queue: cl.CommandQueue, source: cl.Buffer, target: cl.Buffer, nbytes: int, begin: int, offset: int
) -> cl.Event:
    """Copy by kernels, which carry each byte's shadow along."""
    runs, event = nbytes // _RUN, None
    places = np.uint64(begin), np.uint64(offset)
    if runs:
        event = _kernel(queue.context, "put_runs")(queue, (runs,), None, source, target, *places)
    if nbytes > runs * _RUN:
        left, ends = nbytes - runs * _RUN, (np.uint64(runs * _RUN), np.uint64(nbytes))
        event = _kernel(queue.context, "put_bytes")(queue, (left,), None, source, target, *places, *ends)
    queue.finish()
    return event


def _mark(queue: cl.CommandQueue, buffer: cl.Buffer) -> None:
    """Mark all of a buffer as written: a map for writing does, whose memory then holds what it held."""
    write = cl.map_flags.WRITE
    mapped, _ = cl.enqueue_map_buffer(queue, buffer, write, 0, (buffer.size,), np.uint8, is_blocking=False)
    queue.finish()
    mapped.base.release(queue)
    queue.finish()


def _kernel(context: cl.Context, name: str) -> Any:
    key = context.int_ptr
    if key not in _programs:
        _programs[key] = (context, cl.Program(context, _SOURCE).build(["-cl-opt-disable"], cache_dir=False))
    return cl.Kernel(_programs[key][1], name)


def _keep(memory: cl.Buffer | cl.Image) -> None:
    """Keep its place in Oclgrind's memory, by a reference of our own, until the process ends."""
    _kept.append(cl.MemoryObject.from_int_ptr(memory.int_ptr, True))
