"""HostThreadLoop: a step loop that the calling thread walks itself, beside workers that stay for a while after a run.

Waking a thread costs 30 µs and more (measured on a virtual machine: 16 to 80, and milliseconds where the core has to
be woken too). So the thread that asks for a run takes part in it, and what takes it little longer alone is left to it.
Others look at a word in memory between runs that follow each other closely, where that was measured to be faster: one
less than there are cores, so that nobody has to give way to the host. They do not yield meanwhile, or the system would
leave the host on a worker's core. Only for devices whose memory is the host's, on x86 under Linux.
"""

from __future__ import annotations

import math
import platform
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...cl.device.driver_handles import Queue
from ...cl.device.fork_guard import is_child, keep_forever, keep_in_forked_children
from ...cl.memory.host_device_copies import aligned_bytes
from ...cl.programs.background_throttle import is_contended
from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.runtime import Runtime
from .call_from_host import HostFunction, current_core
from .step_table import StepArrays

Array = np.ndarray[Any, Any]
_TRIALS = 10  # runs of each way, alone and joined, before the faster one stays
_ALONE_S = 200e-6  # a run that takes longer than this with all workers is not tried with one
_SHORT_S = 60e-6  # nobody is woken for a run that takes less with one: it would be over by then
_GAIN = 0.8  # times of joined runs vary more, so they must be clearly shorter
_LONGEST_S = 0.01  # a gap counts as this at most, so that a pause is soon forgotten
_WEIGHT = 0.25  # of the last gap between two runs
_PAUSE, _LONGEST_PAUSE = 8, 4096  # runs without others after one that they delayed: twice as many each time
_TABLES = 8  # of sizes used lately
_STEPS, _TURN = 3, 4  # where they lie in a TABLE of plan/megakernel_source.py
_NEVER = 0xFFFFFFFF


class HostThreadLoop:
    """Steps of a model, walked by the thread that calls `run`, one at a time, and by workers that see it in memory."""

    def __init__(
        self,
        rt: Runtime,
        code: HostFunction,
        others: PreparedLaunch,
        call: Array,
        words: Array,
        places: dict[str, int],
        stay: int,
        stay_s: float,
        kept: Sequence[Any],
    ) -> None:
        """The function and the kernel are those of plan/megakernel_source.py.

        code: the host's part of a run, which is given `call`. others: the launch of a worker for each core, of whom the
            one that is on the host's is spare.
        call, words: shared with the workers, numbers of 64 and 32 bits; places: in which of them each name lies.
        stay: the word that lets a worker stay for `stay_s`. kept: memory that a run needs.
        """
        self._rt, self.others = rt, others
        self._given = code, call, words, places, kept
        self._function, self._address = code.function, call.ctypes.data
        self._call, self._words = memoryview(call.data), memoryview(words.data)
        self._workers, self._left = places["WORKERS"], places["LEFT"]
        self._stay, self._leave = places["STAY"], places["LEAVE"]
        self._present, self._inside, self._made = places["TABLE"], places["INSIDE"], places["MADE"]
        self._came, self._spare, self._core = places["CAME"], places["SPARE"], places["CORE"]
        self._launched = math.prod(others.grid)
        self._count = self._launched - 1  # the host has one of their cores
        # A queue of its own: nobody else's commands wait behind a worker that stays.
        self._queue = rt.make_queue()
        self._sent = 0
        self._tables: OrderedDict[StepArrays, _Table] = OrderedDict()  # the present one last
        self._table: _Table | None = None
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._joins: bool | None = None if self._count else False  # a single core is the host's
        # One that waits for a single other worker, which may have to wait for a core, is better off without it.
        self._gives_way = self._count == 1
        self._pause = _PAUSE // 2
        self._without = 0  # runs that go without others before the next one that they may join
        self._ticks, self._stay_s = stay, stay_s
        self._gap_s = 0.0  # from one run to the next, a mean of late
        self._ended = time.perf_counter()
        keep_in_forked_children(self)
        # Workers may look at tables as long as they stay.
        weakref.finalize(self, _dismiss, words, self._leave, self._queue, call, code, kept, self._tables)

    def single_threaded(self) -> HostThreadLoop:
        """Another loop over the same functions, with tables of its own, that the calling thread always walks alone:
        two of them may be walked at once."""
        code, call, words, places, kept = self._given
        own_words = aligned_bytes(words.nbytes).view(words.dtype)
        own_call = aligned_bytes(call.nbytes).view(call.dtype)
        own_call[...] = call
        own_call[places["WORDS"]] = own_words.ctypes.data
        other = HostThreadLoop(
            self._rt, code, self.others, own_call, own_words, places, self._ticks, self._stay_s, kept
        )
        other._joins = False
        return other

    def use(self, rows: StepArrays) -> None:
        """Walk these steps from the next run on. Those of sizes used lately are at hand."""
        tables = self._tables
        table = tables.get(rows)
        if table is None:
            if len(tables) < _TABLES:
                table = _Table(rows)
            else:
                # It has not been the present one for a whole run, so that nobody finds it any more; who found it before
                # is about to leave it.
                _, table = tables.popitem(last=False)
                while self._words[self._inside]:
                    time.sleep(0)
                table.fill(rows)
            tables[rows] = table
        else:
            tables.move_to_end(rows)
        self._table = table
        self._call[self._present] = table.address

    @property
    def launches(self) -> list[PreparedLaunch]:
        """What stands for the model's launches."""
        return [self.others]

    @property
    def description(self) -> str:
        """How a run goes, in words."""
        if self._joins is None:
            return "the calling thread walks it"
        if self._joins:
            return "the calling thread walks it beside workers that stay between runs"
        return "the calling thread walks it alone"

    def run(self) -> None:
        """Run all steps once, and wait. What the host has written before is what they see."""
        started = time.perf_counter()
        self._gap_s += _WEIGHT * (min(started - self._ended, _LONGEST_S) - self._gap_s)
        crowded = self._gives_way and is_contended(started)
        joins = self._joins if self._joins is not None else self._next_trial()
        if joins and self._without:
            joins = False
            self._without -= 1
        if crowded and joins:
            joins = False
            self.leave()
        if joins:
            self._send()
        self._call[self._workers] = self._count + 1 if joins else 1
        table = self._table
        assert table is not None, "run before use"
        table.next_turn()
        self._function(self._address, True, 0)
        self._ended = time.perf_counter()
        if self._joins is None:
            if not crowded:
                self._learn(joins, (self._ended - started) / self._call[self._made])
        elif joins:
            self._look_out(table, (self._ended - started) / self._call[self._made])

    def run_iterations(self, trips: int, moves: Array, goes: int = 0) -> int:
        """Run all steps up to `trips` times, and wait; how often it was.

        moves: rows of MOVE of plan/megakernel_source.py, which are changed. goes: address of the byte that a trip sets
        to zero where none is to follow; 0 for none.
        """
        call, places = self._call, self._given[3]
        call[places["TRIPS"]], call[places["GOES"]] = trips, goes
        call[places["MOVES"]], call[places["MOVED"]] = moves.__array_interface__["data"][0], len(moves)
        try:
            self.run()
        finally:
            call[places["TRIPS"]] = call[places["MOVED"]] = 0
        made: int = call[self._made]
        return made

    def leave(self) -> None:
        """Have the workers that stay leave as soon as they have nothing to do."""
        self._words[self._leave] = 1

    def _send(self) -> None:
        """Launch workers where none is there, and tell them how long to stay after the run."""
        words = self._words
        idle = self._rt.set_resident_worker(self)
        # After the last trial with others they leave, so that the next may go without.
        ends = self._joins is None and len(self._times[True]) >= _TRIALS - 1
        words[self._stay] = self._ticks if not ends and self._gap_s < self._stay_s else 0
        if words[self._left] == self._sent:
            words[self._leave] = 0  # not before: whoever wanted them to leave waits for it
            words[self._came] = words[self._spare] = 0
            self._call[self._core] = current_core()
            self.others.enqueue(self._queue)
            self._sent = (self._sent + self._launched) & 0xFFFFFFFF  # only now: the driver may refuse
            self._queue.flush()
        if idle is not None:
            idle.leave()  # only now: its threads then find this loop's launch, and need not be woken

    def _look_out(self, table: _Table, seconds: float) -> None:
        """Have the next runs go without others if these kept this one waiting for longer than it takes alone.

        A worker whose core another process has got holds work that nobody else may do, for milliseconds.
        """
        if seconds > self._launched * table.least_s:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._without = self._pause
            self.leave()
        else:
            self._pause = max(self._pause // 2, _PAUSE // 2)
            table.least_s = min(table.least_s, seconds)

    def _next_trial(self) -> bool:
        """Whether others join the next run, while it is not known what is faster: at first, so that they may stay."""
        return len(self._times[True]) < _TRIALS

    def _learn(self, joins: bool, seconds: float) -> None:
        times = self._times
        times[joins].append(seconds)
        if len(times[True]) >= _TRIALS and min(times[True]) > _ALONE_S:
            self._joins = True
        elif times[False] and min(times[False]) < _SHORT_S:
            self._joins = False
        elif len(times[False]) >= _TRIALS:
            self._joins = min(times[True]) < _GAIN * min(times[False])


class _Table:
    """A TABLE of plan/megakernel_source.py with what it names. least_s: of its runs beside workers."""

    def __init__(self, rows: StepArrays) -> None:
        self._arrays = [aligned_bytes(a.nbytes).view(a.dtype).reshape(a.shape) for a in (rows.args, rows.shapes)]
        self._counters = aligned_bytes(rows.counter_bytes)
        self._words = aligned_bytes(8 * (_TURN + 1)).view(np.uint64)
        self._words[:3] = [a.ctypes.data for a in (*self._arrays, self._counters)]
        self.address = self._words.ctypes.data
        self._turn = memoryview(self._words.data)
        self.fill(rows)

    def fill(self, rows: StepArrays) -> None:
        """Take other steps, as many and with as many arguments. Nobody may be reading."""
        self.least_s = math.inf
        self._turn[_TURN] = _NEVER
        self._counters[...] = 0
        for mine, new in zip(self._arrays, (rows.args, rows.shapes), strict=True):
            mine[...] = new
        self._turn[_STEPS] = len(rows.shapes)

    def next_turn(self) -> None:
        """Begin a run: who looks may take part."""
        self._turn[_TURN] = (self._turn[_TURN] + 1) & _NEVER


def may_stay(rt: Runtime) -> bool:
    """Whether the host may take part: it and the device see each other's memory at once, and can run the same code."""
    return rt.shares_memory and sys.platform == "linux" and platform.machine().lower() in ("x86_64", "amd64")


def _dismiss(words: Array, leave: int, queue: Queue, *kept: Any) -> None:
    """To be called when nobody can ask any more: memory and code must live as long as a worker is there."""
    if is_child():  # the workers are another process's
        keep_forever(words, queue, kept)
        return
    words[leave] = 1
    queue.finish()
