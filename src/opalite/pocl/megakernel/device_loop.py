"""DeviceStepTable: the step table of a megakernel on the device, and launches over parts of it.

PoCL wakes its threads for every launch: a launch of 4 µs of work for two threads takes 10 µs. Inside a megakernel the
next step is a counter in memory, 0.3 µs. plan/megakernel_source.py makes the program. Memory is passed by address, so
the device must share the host's memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...cl.device.driver_handles import Buffer, Program
from ...cl.memory.host_device_copies import aligned_bytes
from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.runtime import Runtime
from .call_from_host import pin_host_function
from .host_thread_loop import HostThreadLoop, StepArrays

Array = np.ndarray[Any, Any]
_MAX_CACHED = 256  # buffers with cached addresses, besides the constants
StepArgument: TypeAlias = "Buffer | np.generic"
_CLOCK_S = 0.002  # interval in which the CPU's time stamp counter is calibrated


class DeviceStepTable:
    """The steps of one megakernel on the device; `load` must come before the first run."""

    def __init__(self, rt: Runtime, program: Program, rows: StepArrays, label: str) -> None:
        """rows: steps for some sizes; the steps for other sizes have the same number and numbers of arguments."""
        self._rt, self._program, self._label = rt, program, label
        self._rows: StepArrays | None = None
        self._shared: list[Array] = []  # zero-copy arrays
        self._args, self._shapes = self._memory(rows.args), self._memory(rows.shapes)
        self._counters = rt.allocate(rows.counter_bytes)
        rt.fill(self._counters, 0, rows.counter_bytes)

    def _memory(self, like: Array) -> Buffer:
        """A buffer for an array, zero-copy if possible."""
        if self._rt.shares_memory:
            array = aligned_bytes(like.nbytes).view(like.dtype).reshape(like.shape)
            wrapped = self._rt.allocator.wrapped(array, writable=True)
            if wrapped is not None:
                self._shared.append(array)
                return wrapped
        return self._rt.allocate(like.nbytes)

    def load(self, rows: StepArrays) -> None:
        """Execute these steps from now on. No run may be active."""
        if rows is self._rows:
            return
        self._rows = rows
        if len(self._shared) == 2:
            for target, new in zip(self._shared, (rows.args, rows.shapes), strict=True):
                target[...] = new
        else:
            self._rt.write(self._args, rows.args)
            self._rt.write(self._shapes, rows.shapes)

    def loop(self, first: int, last: int) -> tuple[PreparedLaunch, PreparedLaunch]:
        """The launch that executes rows [first, last), and the launch that resets their counters after it."""
        rt, workers = self._rt, self._rt.info.compute_units
        part = (np.uint32(first), np.uint32(last))
        args: list[StepArgument] = [self._args, self._shapes, self._counters, *part, np.uint32(workers)]
        run = rt.prepare(self._program, "run_steps", args, (workers,), (1,), self._label)
        clear = rt.prepare(self._program, "clear_steps", [self._counters, *part], (1,), (1,), self._label)
        return run, clear


def make_host_thread_loop(
    rt: Runtime,
    program: Program,
    addresses: BufferAddresses,
    words: Sequence[str],
    fields: Sequence[str],
    ticks: int,
    spin_s: float,
    label: str,
) -> HostThreadLoop | None:
    """A loop over all steps for the calling thread, alone on a single core; None if the thread cannot call the code.

    words: names of the 32-bit words, one per cache line; fields: names of the 64-bit words, adjacent; as in the
    program. ticks: time stamp counts per unit of word STAY.
    """
    control, call = aligned_bytes(64 * len(words)).view(np.uint32), aligned_bytes(64 * len(fields)).view(np.uint64)
    memory, call_memory = (rt.allocator.wrapped(a, writable=True) for a in (control, call))
    assert memory is not None, "the device does not share host memory"
    assert call_memory is not None, "the device does not share host memory"
    call[fields.index("WORDS")] = addresses.of([memory])[0]
    query = rt.record([rt.prepare(program, "serve_steps", [call_memory, np.uint32(1)], (1,), (1,))])
    clocks: list[tuple[float, int]] = []

    def query_address() -> int:
        time.sleep(_CLOCK_S if clocks else 0)
        query.run()
        rt.finish()
        clocks.append((time.perf_counter(), int(call[fields.index("CLOCK")])))
        return int(call[fields.index("CODE")])

    code = pin_host_function(query_address)
    if code is None:
        return None
    (before_s, before), (after_s, after) = clocks[0], clocks[-1]
    word = min(int(spin_s * (after - before) / (after_s - before_s) / ticks), 0xFFFFFFFF)
    serve = rt.prepare(program, "serve_steps", [call_memory, np.uint32(0)], (rt.info.compute_units,), (1,), label)
    word_index = {w: 16 * i for i, w in enumerate(words)} | {f: i for i, f in enumerate(fields)}
    return HostThreadLoop(rt, code, serve, call, control, word_index, word, spin_s, [memory])


class BufferAddresses:
    """Device addresses of buffers, queried by a kernel and cached."""

    def __init__(self, rt: Runtime, program: Program, constants: Sequence[Buffer]) -> None:
        """program: of plan/megakernel_source.py. constants: buffers whose addresses are always cached."""
        self._rt, self._program = rt, program
        self._found: dict[int, tuple[Buffer, int]] = {}  # by id of the buffer, which is kept alive
        self._launch: PreparedLaunch | None = None
        self._query({id(m): m for m in constants}.values())
        self._constant = dict(self._found)

    def replica(self) -> BufferAddresses:
        """A copy for another thread, with the constants' addresses."""
        other = object.__new__(BufferAddresses)
        other._rt, other._program, other._constant = self._rt, self._program, self._constant
        other._found, other._launch = dict(self._constant), None
        return other

    def of(self, memory: Sequence[Buffer]) -> list[int]:
        """Address of each buffer."""
        if len(self._found) > len(self._constant) + _MAX_CACHED:
            self.drop_buffers()
        self._query({id(m): m for m in memory if id(m) not in self._found}.values())
        return [self._found[id(m)][1] for m in memory]

    def find(self, memory: Sequence[Buffer]) -> list[int]:
        """As `of`, without a cache, which would keep the buffers alive."""
        if not memory:
            return []
        rt, found = self._rt, self._rt.allocate(8 * len(memory))
        launch = self._launch  # reused: a new launch takes a millisecond
        for i, m in enumerate(memory):
            args: list[StepArgument] = [m, found, np.uint32(i)]
            if launch is None:
                launch = self._launch = rt.prepare(self._program, "address", args, (1,), (1,))
            launch.update(args, (1,), (1,))
            launch.enqueue(rt.queue)
        addresses = np.empty(len(memory), np.uint64)
        rt.read(found, addresses)
        if launch is not None:
            launch.release_arguments()
        return [int(a) for a in addresses]

    def drop_buffers(self) -> None:
        """Release all buffers but the constants."""
        self._found = dict(self._constant)

    def _query(self, memory: Collection[Buffer]) -> None:
        self._found.update((id(m), (m, a)) for m, a in zip(memory, self.find(list(memory)), strict=True))
