"""HostThreadLoop: a megakernel that the calling thread executes, alone or with spinning workers.

Waking a thread costs 16 to 80 µs (measured on a virtual machine), milliseconds if its core sleeps. So the calling
thread executes steps itself, without workers if they would hardly make the run faster. Otherwise cores - 1 workers spin
on a word in memory between back-to-back runs, so that the caller keeps a core. Spinning workers do not yield: the
scheduler would leave the caller on a worker's core. Only for CPU devices that share host memory, on x86-64 Linux.
"""

from __future__ import annotations

import math
import platform
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...cl.device.driver_handles import Queue
from ...cl.device.fork_guard import is_child, keep_forever, keep_in_forked_children
from ...cl.memory.host_device_copies import aligned_bytes
from ...cl.programs.background_throttle import is_contended
from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.runtime import Runtime
from ...lazy_dataclass import dataclass
from .call_from_host import HostFunction, current_core

Array = np.ndarray[Any, Any]
_TRIALS = 10  # runs with and without workers before the faster way is chosen
_ALONE_S = 200e-6  # a run that takes longer with workers is not tried without
_SHORT_S = 60e-6  # a run that takes less without workers needs none: waking them takes as long
_GAIN = 0.8  # times with workers vary more, so they must be clearly shorter
_MAX_GAP_S = 0.01  # longer gaps count as this, so that one pause has little weight
_WEIGHT = 0.25  # of the last gap in the moving average
_MIN_BACKOFF, _MAX_BACKOFF = 8, 4096  # runs without workers after a delayed one: doubled each time
_MAX_TABLES = 8  # for the most recent sizes
_STEPS, _RUN = 3, 4  # words of a TABLE of plan/megakernel_source.py
_NO_RUN = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class StepArrays:
    """Step table of a megakernel for one set of sizes.

    args: arguments of all steps in order, 64 bits each: addresses and scalars. shapes: a row for each step: function,
    offset of its arguments, number of work-groups (total, x, y), work-items of each. counter_bytes: of the steps'
    counters.
    """

    args: Array
    shapes: Array
    counter_bytes: int


class HostThreadLoop:
    """Steps of a program, executed by the thread that calls `run` and by workers. One thread calls `run` at a time.

    arrays: the steps.
    """

    def __init__(
        self,
        rt: Runtime,
        code: HostFunction,
        worker_launch: PreparedLaunch,
        call: Array,
        words: Array,
        word_index: dict[str, int],
        spin_ticks: int,
        spin_s: float,
        resources: Sequence[Any],
    ) -> None:
        """Function and kernel are those of plan/megakernel_source.py.

        code: the host's function, called with `call`. worker_launch: a worker for each core; the one on the caller's
            core leaves.
        call, words: memory shared with the workers, of 64 and 32-bit words; word_index: index of each word by name.
        spin_ticks: value of word STAY that lets workers spin for `spin_s` seconds. resources: memory that a run needs.
        """
        self._rt, self.worker_launch = rt, worker_launch
        self._shared = code, call, words, word_index, resources
        self._function, self._address = code.function, call.ctypes.data
        self._is_alone = False  # whether no worker is there or will come
        self._call, self._words = memoryview(call.data), memoryview(words.data)
        self._workers, self._left = word_index["WORKERS"], word_index["LEFT"]
        self._stay, self._leave = word_index["STAY"], word_index["LEAVE"]
        self._current, self._inside, self._iterations_done = (
            word_index["TABLE"],
            word_index["INSIDE"],
            word_index["ITERATIONS_DONE"],
        )
        self._came, self._spare, self._core = word_index["CAME"], word_index["SPARE"], word_index["CORE"]
        self._launched = math.prod(worker_launch.grid)
        self._count = self._launched - 1  # the caller uses one core
        # A separate queue: other commands must not wait for spinning workers.
        self._queue = rt.make_queue()
        self._sent = 0
        self._tables: OrderedDict[StepArrays, _Table] = OrderedDict()  # least recently used first
        self._table: _Table | None = None
        self.arrays: StepArrays | None = None
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._uses_workers: bool | None = None if self._count else False  # None while undecided
        self._valid_runs = 0  # before a stored decision on workers is measured again
        self._on_decision: Callable[[bool], None] | None = None
        # On two contended cores a run is faster without its single worker, which may lack a core.
        self._avoids_contention = self._count == 1
        self._backoff = _MIN_BACKOFF // 2
        self._runs_alone = 0  # runs without workers before the next one with workers
        self._ticks, self._spin_s = spin_ticks, spin_s
        self._gap_s = 0.0  # moving average of the time between runs
        self._ended = time.perf_counter()
        keep_in_forked_children(self)
        # Spinning workers read the tables.
        weakref.finalize(self, _dismiss, words, self._leave, self._queue, call, code, resources, self._tables)

    def keep_workers(self, uses_workers: bool | None, valid_runs: int, on_decision: Callable[[bool], None]) -> None:
        """Run with workers or without, as an earlier process has decided; None: measure.

        valid_runs: number of runs after which it is measured again. on_decision: called with what was measured.
        """
        self._on_decision = on_decision
        if self._count and uses_workers is not None:
            self._uses_workers, self._valid_runs = uses_workers, valid_runs

    def single_threaded(self) -> HostThreadLoop:
        """A loop over the same functions with its own tables and without workers, for concurrent runs."""
        code, call, words, word_index, resources = self._shared
        own_words = aligned_bytes(words.nbytes).view(words.dtype)
        own_call = aligned_bytes(call.nbytes).view(call.dtype)
        own_call[...] = call
        own_call[word_index["WORDS"]] = own_words.ctypes.data
        other = HostThreadLoop(
            self._rt, code, self.worker_launch, own_call, own_words, word_index, self._ticks, self._spin_s, resources
        )
        other._uses_workers = False
        return other

    def set_table(self, arrays: StepArrays) -> None:
        """Execute these steps from the next run on. Tables of recent sizes are cached."""
        if arrays is self.arrays:
            return
        tables, self.arrays = self._tables, arrays
        table = tables.get(arrays)
        if table is None:
            if len(tables) < _MAX_TABLES:
                table = _Table(arrays)
            else:
                # The table has not been current for a whole run, so no worker enters it. Wait for workers inside.
                _, table = tables.popitem(last=False)
                while self._words[self._inside]:
                    time.sleep(0)
                table.fill(arrays)
            tables[arrays] = table
        else:
            tables.move_to_end(arrays)
        self._table = table
        self._call[self._current] = table.address

    @property
    def launches(self) -> list[PreparedLaunch]:
        """The launches that replace the program's."""
        return [self.worker_launch]

    @property
    def description(self) -> str:
        """Description of a run's threads."""
        if self._uses_workers is None:
            return "executed by the calling thread"
        if self._uses_workers:
            return "executed by the calling thread and workers that spin between runs"
        return "executed by the calling thread alone"

    def run(self) -> None:
        """Execute all steps once, and wait. The steps see the host's earlier writes."""
        if self._is_alone:  # nothing to measure and nothing to share: 1 us of a run of 4
            self._function(self._address)
            return
        table = self._table
        assert table is not None, "run before set_table"
        if self._uses_workers is False and not self._valid_runs and self._words[self._left] == self._sent:
            self._is_alone = True
            self._call[self._workers] = 0
            self._function(self._address)
            return
        started = time.perf_counter()
        self._gap_s += _WEIGHT * (min(started - self._ended, _MAX_GAP_S) - self._gap_s)
        contended = self._avoids_contention and is_contended(started)
        if self._valid_runs:
            self._valid_runs -= 1
            if not self._valid_runs:
                self._uses_workers = None
        with_workers = self._uses_workers
        if with_workers is None:  # trials with workers come first, so that the workers can spin
            with_workers = len(self._times[True]) < _TRIALS
        if self._uses_workers and self._runs_alone:
            with_workers = False
            self._runs_alone -= 1
        if contended and with_workers:
            with_workers = False
            self.dismiss_workers()
        if with_workers:
            self._launch_workers()
        self._call[self._workers] = self._count + 1 if with_workers else 1
        table.begin_run()
        self._function(self._address)
        self._ended = time.perf_counter()
        if self._uses_workers is None:
            if not contended:
                self._learn(with_workers, (self._ended - started) / self._call[self._iterations_done])
        elif with_workers:
            self._back_off(table, (self._ended - started) / self._call[self._iterations_done])

    def run_iterations(self, iterations: int, copies: Array, condition: int = 0) -> int:
        """Execute all steps up to `iterations` times, and wait; returns the number of iterations executed.

        copies: rows of HOST_COPY of plan/megakernel_source.py, modified. condition: address of the byte that an
        iteration sets to zero to end the loop; 0 for none.
        """
        call, word_index = self._call, self._shared[3]
        call[word_index["MAX_ITERATIONS"]], call[word_index["CONDITION"]] = iterations, condition
        call[word_index["COPIES"]], call[word_index["COPY_COUNT"]] = copies.__array_interface__["data"][0], len(copies)
        try:
            self.run()
        finally:
            call[word_index["MAX_ITERATIONS"]] = call[word_index["COPY_COUNT"]] = 0
        done: int = call[self._iterations_done]
        return done

    def dismiss_workers(self) -> None:
        """Let spinning workers end as soon as they are idle."""
        self._words[self._leave] = 1

    def _launch_workers(self) -> None:
        """Launch workers unless they are spinning, and set how long they spin after the run."""
        words = self._words
        idle = self._rt.set_resident_worker(self)
        # After the last trial with workers they leave: the next trials run without.
        ends = self._uses_workers is None and len(self._times[True]) >= _TRIALS - 1
        words[self._stay] = self._ticks if not ends and self._gap_s < self._spin_s else 0
        if words[self._left] == self._sent:
            words[self._leave] = 0  # not before: a dismissal waits for it
            words[self._came] = words[self._spare] = 0
            self._call[self._core] = current_core()
            self.worker_launch.enqueue(self._queue)
            self._sent = (self._sent + self._launched) & 0xFFFFFFFF  # after enqueue, which the driver may refuse
            self._queue.flush()
        if idle is not None:
            idle.dismiss_workers()  # after the launch: the threads then find it without sleeping

    def _back_off(self, table: _Table, seconds: float) -> None:
        """Run without workers for a while if a run with workers was slower than the caller alone.

        A preempted worker delays its claimed part of a step by milliseconds.
        """
        if seconds > self._launched * table.least_s:
            self._backoff = min(2 * self._backoff, _MAX_BACKOFF)
            self._runs_alone = self._backoff
            self.dismiss_workers()
        else:
            self._backoff = max(self._backoff // 2, _MIN_BACKOFF // 2)
            table.least_s = min(table.least_s, seconds)

    def _learn(self, with_workers: bool, seconds: float) -> None:
        times = self._times
        times[with_workers].append(seconds)
        if len(times[True]) >= _TRIALS and min(times[True]) > _ALONE_S:
            self._uses_workers = True
        elif times[False] and min(times[False]) < _SHORT_S:
            self._uses_workers = False
        elif len(times[False]) >= _TRIALS:
            self._uses_workers = min(times[True]) < _GAIN * min(times[False])
        if self._uses_workers is not None and self._on_decision is not None:
            self._on_decision(self._uses_workers)


class _Table:
    """A TABLE of plan/megakernel_source.py with its arrays. least_s: shortest run with workers, in seconds."""

    def __init__(self, arrays: StepArrays) -> None:
        self._arrays = [aligned_bytes(a.nbytes).view(a.dtype).reshape(a.shape) for a in (arrays.args, arrays.shapes)]
        self._counters = aligned_bytes(arrays.counter_bytes)
        self._words = aligned_bytes(8 * (_RUN + 1)).view(np.uint64)
        self._words[:3] = [a.ctypes.data for a in (*self._arrays, self._counters)]
        self.address = self._words.ctypes.data
        self._header = memoryview(self._words.data)
        self.fill(arrays)

    def fill(self, arrays: StepArrays) -> None:
        """Replace the steps by equally many with equally many arguments. No worker may be reading."""
        self.least_s = math.inf
        self._header[_RUN] = _NO_RUN
        self._counters[...] = 0
        for target, new in zip(self._arrays, (arrays.args, arrays.shapes), strict=True):
            target[...] = new
        self._header[_STEPS] = len(arrays.shapes)

    def begin_run(self) -> None:
        """Begin a run, which spinning workers then join."""
        self._header[_RUN] = (self._header[_RUN] + 1) & _NO_RUN


def supports_host_loop(rt: Runtime) -> bool:
    """Return whether the host can execute the device's code on shared memory."""
    return rt.shares_memory and sys.platform == "linux" and platform.machine().lower() in ("x86_64", "amd64")


def _dismiss(words: Array, leave: int, queue: Queue, *resources: Any) -> None:
    """Wait until no worker runs, because workers use `resources`."""
    if is_child():  # the workers are the parent's
        keep_forever(words, queue, resources)
        return
    words[leave] = 1
    queue.finish()
