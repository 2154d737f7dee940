"""ResidentLoop: a step loop whose workers stay for a while after a run and take the next one from memory.

Waking a thread costs 30 µs and more (measured on a virtual machine: 16 to 80, and milliseconds where the core has to
be woken too), which a run pays three times when it is launched: the thread that takes the launch, the others, and the
caller at the end. Workers that stay look at a word in memory that the host writes. They do not yield meanwhile: then
the system leaves the host on a worker's core, where the two wait for each other (measured, mnist 0.24 ms instead of
0.04). So they stay only where runs have followed each other closely of late, and all but the first only where
the host has hardly needed a core in between, and where a run is long enough for them, which is measured. Only for
devices whose memory is the host's, and processors that keep stores in order (x86).
"""

from __future__ import annotations

import ctypes
import platform
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl

from .launch import PreparedLaunch
from .runtime import Runtime
from .tensor import aligned_bytes

_TRIALS = 10  # runs of each way, alone and joined, before the faster one stays
_ALONE_S = 200e-6  # a run that takes longer than this with all workers is not tried with one
_SHORT_S = 60e-6  # nobody is woken for a run that takes less with one: it would be over by then
_GAIN = 0.8  # times of joined runs vary more, so they must be clearly shorter
_CLOSE_S = 150e-6  # from run to run: where the next comes later, the host may need a core until then
_LONGEST_S = 0.01  # a gap counts as this at most, so that a pause is soon forgotten
_WEIGHT = 0.25  # of the last gap between two runs
_LOOKS, _LEAST_LOOKS = 3000, 100  # of the host, before it sleeps: some 150 to 500 µs, and 5 to 20
_EXPLORE = 50  # of so many waits one takes up to _LOOKS
_NAP_S = 0.005  # longest sleep of the host before it looks whether a worker is there
_FUTEX, _WAIT = 202, 128  # of threads of one process


class ResidentLoop:
    """Steps of a model, run by workers that the host speaks to through memory. One thread at a time may call `run`.

    The workers' kernels are those of plan/step_text.py, whose CONTROL names the words of `control`.
    """

    def __init__(
        self,
        rt: Runtime,
        serve: Callable[[Any, int, int], PreparedLaunch],
        words: Sequence[str],
        spins: int,
        stay_s: float,
    ) -> None:
        """serve(control, workers, left) prepares the launch of that many workers.

        The first of them counts in word `left`, all others in OTHERS_LEFT. spins: looks for the next run before a
        worker leaves, which take about `stay_s`.
        """
        self._rt = rt
        host = aligned_bytes(64 * len(words), 4096)
        control = rt.memory.wrapped(host, writable=True)
        assert control is not None, "asked for on a device that does not share memory"
        self._words = memoryview(host.data).cast("I")
        self._asked, self._finished, self._sleeper, self._leave = (
            16 * words.index(w) for w in ("ASKED", "FINISHED", "SLEEPER", "LEAVE")
        )
        self._left, self._looks, self._others_left, self._others_looks = (
            16 * words.index(w) for w in ("LEFT", "LOOKS", "OTHERS_LEFT", "OTHERS_LOOKS")
        )
        self._address = host.__array_interface__["data"][0] + 4 * self._finished
        others = rt.info.compute_units - 1
        self.first = serve(control, 1, self._left)
        self.others = serve(control, others, self._others_left) if others else None
        self.all = serve(control, others + 1, self._left)
        # Queues of their own: nobody else's commands wait behind a worker that stays.
        self._queues = [cl.CommandQueue(rt.context, rt.device) for _ in range(2)]
        self._sent = self._others_sent = 0
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._joins: bool | None = None if others else False
        self._spins, self._stay_s, self._close_s = spins, stay_s, min(stay_s, _CLOSE_S)
        self._usual_looks, self._waits = _LOOKS, 0  # of the host until a run was over
        self._gap_s = 0.0  # from one run to the next, a mean of late
        self._ended = time.perf_counter()
        weakref.finalize(self, _dismiss, host, self._leave, self._queues)

    @property
    def launches(self) -> list[PreparedLaunch]:
        """What stands for the model's launches."""
        return [self.first]

    @property
    def description(self) -> str:
        """How a run goes, in words."""
        if self._joins is None:
            return "one worker stays between runs"
        return (
            "all workers stay between runs" if self._joins else "one worker stays between runs and does all of the work"
        )

    def run(self) -> None:
        """Run all steps once, and wait. What the host has written before is what they see."""
        idle = self._rt.take_residence(self)
        joins = self._joins if self._joins is not None else self._next_trial()
        if self._words[self._finished] != self._words[self._asked]:
            self._wait(False)  # the wait for the run before was interrupted twice
        started = time.perf_counter()
        self._gap_s += _WEIGHT * (min(started - self._ended, _LONGEST_S) - self._gap_s)
        try:
            self._ask(joins)
        finally:
            if idle is not None:
                idle.leave()  # only now: its threads then find this loop's launch, and need not be woken
            self._wait(not joins)
        self._ended = time.perf_counter()
        if self._joins is None:
            self._learn(joins, self._ended - started)

    def leave(self) -> None:
        """Have the workers that stay leave as soon as they have nothing to do."""
        self._words[self._leave] = 1

    def _ask(self, joins: bool) -> None:
        words = self._words
        first_left, others_left = words[self._left] == self._sent, words[self._others_left] == self._others_sent
        if first_left and others_left:
            words[self._leave] = 0  # not before: whoever wanted them to leave waits for it
        words[self._looks] = self._spins if self._gap_s < self._stay_s else 0
        # After the last trial with others they leave, so that the next may go without.
        ends = self._joins is None and len(self._times[True]) >= _TRIALS - 1
        words[self._others_looks] = self._spins if joins and not ends and self._gap_s < self._close_s else 0
        words[self._asked] = (words[self._asked] + 1) & 0xFFFFFFFF
        self._send(words[self._left] == self._sent, joins and others_left)

    def _send(self, first: bool, others: bool) -> None:
        """Launch workers that are not there.

        By one command: a thread that wakes may take this thread's core at once, and then nobody would launch the rest.
        """
        if first:
            self._sent = (self._sent + 1) & 0xFFFFFFFF
        if others:
            self._others_sent = (self._others_sent + self._rt.info.compute_units - 1) & 0xFFFFFFFF
        workers = self.all if first and others else self.first if first else self.others if others else None
        if workers is not None:
            queue = self._queues[0 if first else 1]
            workers.enqueue(queue)
            queue.flush()

    def _wait(self, is_short: bool) -> None:
        words, finished = self._words, self._finished
        run = words[self._asked]
        if is_short:
            for looks in range(self._patience()):
                if words[finished] == run:
                    self._usual_looks += (looks - self._usual_looks) // 4
                    return
        sleep = _sleeper()
        while (seen := words[finished]) != run:
            # A worker that left just as this run was asked for is seen here at the latest.
            self._send(words[self._left] == self._sent, False)
            words[self._sleeper] = 1
            sleep(self._address, seen)
        words[self._sleeper] = 0

    def _patience(self) -> int:
        """Times to look before sleeping: a few more than usual, for a host that looks on may hold the worker's core.

        Once in a while as often as ever, in case runs have become longer.
        """
        self._waits += 1
        return _LOOKS if self._waits % _EXPLORE == 0 else min(2 * self._usual_looks + _LEAST_LOOKS, _LOOKS)

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


def may_stay(rt: Runtime) -> bool:
    """Whether host and workers see each other's memory at once, and in the order it was written."""
    return rt.shares_memory and platform.machine().lower() in ("x86_64", "amd64")


def _dismiss(host: np.ndarray[Any, Any], leave: int, queues: Sequence[cl.CommandQueue]) -> None:
    """To be called when nobody can ask any more: the words must live as long as a worker looks at them."""
    memoryview(host.data).cast("I")[leave] = 1
    for queue in queues:
        queue.finish()


@cache
def _sleeper() -> Callable[[int, int], None]:
    """A function that sleeps while the word at an address has a value, for _NAP_S at most or a moment."""
    if sys.platform != "linux":
        return lambda address, seen: time.sleep(50e-6)
    library = ctypes.CDLL(None)
    nap = (ctypes.c_long * 2)(0, int(_NAP_S * 1e9))
    call = library.syscall
    call.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
    where = ctypes.addressof(nap)

    def sleep(address: int, seen: int, nap: Any = nap) -> None:
        call(_FUTEX, address, _WAIT, seen, where)

    return sleep
