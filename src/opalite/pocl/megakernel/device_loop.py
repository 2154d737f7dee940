"""StepLoop: many launches as one, whose workers walk down a table of steps together.

PoCL wakes its threads for every launch and lets them sleep after it: measured, a launch that keeps two threads busy for
4 µs each takes 10. Inside one launch the way from step to step is a counter in memory: 0.3 µs. The program comes from
plan/megakernel_source.py; memory is handed over as addresses, so a StepLoop needs a device whose memory is the host's.
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
from .host_thread_loop import HostThreadLoop
from .step_table import StepArrays

Array = np.ndarray[Any, Any]
_ASIDE = 256  # buffers that may go, and are held only because their addresses are known
_CLOCK_S = 0.002  # between two looks at the processor's clock, to learn how fast it is


class DeviceStepTable:
    """The steps of one linked program on the device, from which loops over parts of them are made.

    `take` says for which sizes; before that no loop must run.
    """

    def __init__(self, rt: Runtime, program: Program, rows: StepArrays, label: str) -> None:
        """rows: steps of some sizes; those of others are as many, with as many arguments."""
        self._rt, self._program, self._label = rt, program, label
        self._rows: StepArrays | None = None
        self._shared: list[Array] = []  # arrays that are the device's memory, where it shares the host's
        self._args, self._shapes = self._memory(rows.args), self._memory(rows.shapes)
        self._counters = rt.allocate(rows.counter_bytes)
        rt.fill(self._counters, 0, rows.counter_bytes)

    def _memory(self, like: Array) -> Buffer:
        """A buffer for an array; without a command, where that can be."""
        if self._rt.shares_memory:
            array = aligned_bytes(like.nbytes).view(like.dtype).reshape(like.shape)
            wrapped = self._rt.allocator.wrapped(array, writable=True)
            if wrapped is not None:
                self._shared.append(array)
                return wrapped
        return self._rt.allocate(like.nbytes)

    def take(self, rows: StepArrays) -> None:
        """Run these steps from now on. No run may be under way."""
        if rows is self._rows:
            return
        self._rows = rows
        if len(self._shared) == 2:
            for mine, new in zip(self._shared, (rows.args, rows.shapes), strict=True):
                mine[...] = new
        else:
            self._rt.write(self._args, rows.args)
            self._rt.write(self._shapes, rows.shapes)

    def loop(self, first: int, last: int) -> tuple[PreparedLaunch, PreparedLaunch]:
        """The launch that runs rows `first` to `last`, and the one that sets their counters back after it."""
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
    stay_s: float,
    label: str,
) -> HostThreadLoop | None:
    """A loop over all steps that the host walks too, alone where the device has one core.

    words: of 32 bits, a cache line each; fields: of 64 bits, side by side; as the program reads them. ticks: of the
    processor's clock, in which it measures time. None where the host cannot call the program's code.
    """
    control, call = aligned_bytes(64 * len(words)).view(np.uint32), aligned_bytes(64 * len(fields)).view(np.uint64)
    memory, given = rt.allocator.wrapped(control, writable=True), rt.allocator.wrapped(call, writable=True)
    assert memory is not None, "asked for on a device that does not share memory"
    assert given is not None, "asked for on a device that does not share memory"
    call[fields.index("WORDS")] = addresses.of([memory])[0]
    telling = rt.record([rt.prepare(program, "serve_steps", [given, np.uint32(1)], (1,), (1,))])
    clocks: list[tuple[float, int]] = []

    def tell() -> int:
        time.sleep(_CLOCK_S if clocks else 0)
        telling.run()
        rt.finish()
        clocks.append((time.perf_counter(), int(call[fields.index("CLOCK")])))
        return int(call[fields.index("CODE")])

    code = pin_host_function(tell)
    if code is None:
        return None
    (before_s, before), (after_s, after) = clocks[0], clocks[-1]
    word = min(int(stay_s * (after - before) / (after_s - before_s) / ticks), 0xFFFFFFFF)
    serve = rt.prepare(program, "serve_steps", [given, np.uint32(0)], (rt.info.compute_units,), (1,), label)
    places = {w: 16 * i for i, w in enumerate(words)} | {f: i for i, f in enumerate(fields)}
    return HostThreadLoop(rt, code, serve, call, control, places, word, stay_s, [memory])


class BufferAddresses:
    """Where buffers lie, as kernels see it: asked of one, once for each."""

    def __init__(self, rt: Runtime, program: Program, constants: Sequence[Buffer]) -> None:
        """program: one of plan/megakernel_source.py. constants: buffers whose addresses are wanted again and again."""
        self._rt, self._program = rt, program
        self._found: dict[int, tuple[Buffer, int]] = {}  # by id of the buffer, which is kept for that
        self._launch: PreparedLaunch | None = None
        self._ask({id(m): m for m in constants}.values())
        self._constant = dict(self._found)

    def replica(self) -> BufferAddresses:
        """The same for another thread, which asks for other buffers but the constants."""
        other = object.__new__(BufferAddresses)
        other._rt, other._program, other._constant = self._rt, self._program, self._constant
        other._found, other._launch = dict(self._constant), None
        return other

    def of(self, memory: Sequence[Buffer]) -> list[int]:
        """The address of each."""
        if len(self._found) > len(self._constant) + _ASIDE:
            self.forget()
        self._ask({id(m): m for m in memory if id(m) not in self._found}.values())
        return [self._found[id(m)][1] for m in memory]

    def forget(self) -> None:
        """Let go of all buffers but the constants."""
        self._found = dict(self._constant)

    def _ask(self, memory: Collection[Buffer]) -> None:
        if not memory:
            return
        rt, found = self._rt, self._rt.allocate(8 * len(memory))
        launch = self._launch  # kept, for making one takes a millisecond
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
        self._found.update((id(m), (m, int(a))) for m, a in zip(memory, addresses, strict=True))


StepArgument: TypeAlias = "Buffer | np.generic"
