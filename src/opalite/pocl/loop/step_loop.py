"""StepLoop: many launches as one, whose workers walk down a table of steps together.

PoCL wakes its threads for every launch and lets them sleep after it: measured, a launch that keeps two threads busy for
4 µs each takes 10. Inside one launch the way from step to step is a counter in memory: 0.3 µs. The program comes from
plan/step_text.py; memory is handed over as addresses, so a StepLoop needs a device whose memory is the host's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...cl.handles import Buffer, Program
from ...cl.launch import PreparedLaunch
from ...cl.runtime import Runtime
from ...cl.transfer import aligned_bytes
from .host_code import find_host_code
from .host_loop import HostLoop

Array = np.ndarray[Any, Any]
_CLOCK_S = 0.002  # between two looks at the processor's clock, to learn how fast it is


@dataclass(frozen=True)
class StepRow:
    """One launch: which function, how many work-groups along x and y and of how many items each, and its arguments."""

    function: int
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    args: tuple[Buffer | int, ...]  # memory, or the 64 bits of a number


class StepTable:
    """The steps of one linked program on the device, from which loops over parts of them are made."""

    def __init__(
        self, rt: Runtime, program: Program, rows: Sequence[StepRow], shape: int, counters: int, label: str
    ) -> None:
        """`shape` and `counters` are the numbers of a row of the tables that the program reads."""
        self._rt, self._program, self._rows, self._label = rt, program, len(rows), label
        addresses = self._find_addresses([a for row in rows for a in row.args if not isinstance(a, int)])
        args: list[int] = []
        shapes = np.zeros((len(rows), shape), np.uint32)
        for i, row in enumerate(rows):
            gx, gy, gz = row.groups
            shapes[i] = (row.function, len(args), gx * gy * gz, gx, gy, *row.items)
            args.extend(a if isinstance(a, int) else addresses[id(a)] for a in row.args)
        self._args = self._upload(np.array(args, np.uint64))
        self._shapes = self._upload(shapes)
        self._counters = self._upload(np.zeros((len(rows), counters), np.uint32))

    def loop(self, first: int, last: int) -> tuple[PreparedLaunch, PreparedLaunch]:
        """The launch that runs rows `first` to `last`, and the one that sets their counters back after it."""
        rt, workers = self._rt, self._rt.info.compute_units
        part = (np.uint32(first), np.uint32(last))
        args: list[StepArgument] = [self._args, self._shapes, self._counters, *part, np.uint32(workers)]
        run = rt.prepare(self._program, "run_steps", args, (workers,), (1,), self._label)
        clear = rt.prepare(self._program, "clear_steps", [self._counters, *part], (1,), (1,), self._label)
        return run, clear

    def stay(self, words: Sequence[str], fields: Sequence[str], ticks: int, stay_s: float) -> HostLoop | None:
        """All rows as one loop that the host walks too, alone where the device has one core.

        The table must not be run in another way. words: of 32 bits, a cache line each; fields: of 64 bits, side by
        side; as the program reads them. ticks: of the processor's clock, in which it measures time. None where the host
        cannot call the program's code.
        """
        rt, others = self._rt, self._rt.info.compute_units - 1
        control, call = aligned_bytes(64 * len(words)).view(np.uint32), aligned_bytes(64 * len(fields)).view(np.uint64)
        memory, given = rt.allocator.wrapped(control, writable=True), rt.allocator.wrapped(call, writable=True)
        assert memory is not None, "asked for on a device that does not share memory"
        assert given is not None, "asked for on a device that does not share memory"
        tables = [self._args, self._shapes, self._counters, memory]
        addresses = self._find_addresses(tables)
        call[:5] = [*(addresses[id(t)] for t in tables), self._rows]
        tell = rt.record([rt.prepare(self._program, "serve_steps", [given, np.uint32(1)], (1,), (1,))])
        clocks = []
        for _ in range(2):
            tell.run()
            rt.finish()
            clocks.append((time.perf_counter(), int(call[fields.index("CLOCK")])))
            time.sleep(_CLOCK_S)
        (before_s, before), (after_s, after) = clocks
        word = min(int(stay_s * (after - before) / (after_s - before_s) / ticks), 0xFFFFFFFF)
        code = find_host_code(int(call[fields.index("CODE")]))
        if code is None:
            return None
        serve = rt.prepare(self._program, "serve_steps", [given, np.uint32(0)], (others,), (1,), self._label)
        places = {w: 16 * i for i, w in enumerate(words)} | {f: i for i, f in enumerate(fields)}
        return HostLoop(rt, code, serve, call, control, places, word, stay_s, tables)

    def _upload(self, array: Array) -> Buffer:
        buffer = self._rt.allocate(array.nbytes)
        self._rt.write(buffer, array)
        return buffer

    def _find_addresses(self, memory: Sequence[Buffer]) -> dict[int, int]:
        """Where each buffer lies, by its id, as kernels see it."""
        rt, distinct = self._rt, list({id(m): m for m in memory}.values())
        found = rt.allocate(8 * max(len(distinct), 1))
        launches = [
            rt.prepare(self._program, "address", [m, found, np.uint32(i)], (1,), (1,)) for i, m in enumerate(distinct)
        ]
        rt.record(launches).run()
        addresses = np.empty(len(distinct), np.uint64)
        if distinct:
            rt.read(found, addresses)
        return {id(m): int(a) for m, a in zip(distinct, addresses, strict=True)}


StepArgument: TypeAlias = "Buffer | np.generic"
