"""ShortRoute: runs of a route whose launches the calling thread executes, with one check, two copies and one call."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from numpy import ndarray

from ...cl.device.fork_guard import process
from ..execute.run_trace import RunTrace
from .route import Route
from .run_lock import RunLock
from .session_counters import SessionCounters

Array = ndarray[Any, Any]


class ShortRoute:
    """Runs of a route with a `whole` strategy, on arrays.

    A run of a few microseconds takes less time than the layers between a session and its strategy. This is the same
    run, with the same checks, in one function; its trace is made when somebody asks for it.

    is_untold: whether the last run was by this way, and nobody has asked for its trace.
    """

    __slots__ = (
        *("_counters", "_device_counters", "_executable", "_inputs", "_lock", "_loop", "_outputs", "_route", "_rows"),
        *("_strategy", "_times", "_width", "is_untold"),
    )

    def __init__(self, route: Route, lock: RunLock, counters: SessionCounters) -> None:
        """lock, counters: of the session."""
        assert route.whole is not None, "the route has no strategy that is all of its runs"
        assert route.executable is not None, "the route is of several executables"
        self._route, self._lock, self._counters = route, lock, counters
        self._executable, strategy = route.executable, route.whole
        self._strategy, self._loop, self._rows = strategy, strategy.loop, strategy.rows
        self._device_counters = strategy.instance.rt.counters
        self._width = len(route.types)
        places = dict(zip(strategy.instance.inputs, route.types, strict=True))
        self._inputs = [(*places[number], memory) for number, memory in strategy.inputs]
        held = dict(strategy.outputs)
        self._outputs = [held[number] for number in strategy.instance.outputs]
        self._times = 0.0, 0.0, 0.0, 0.0
        self.is_untold = False

    def run(self, feeds: Mapping[str, Any]) -> list[Array] | None:
        """The outputs in order; None if the run needs another way.

        It does for feeds of other types, where another program has taken the place of this one, and beside other
        threads.
        """
        if type(feeds) is not dict or len(feeds) != self._width or process.is_child or not self._route.is_current:
            return None
        lock, executable, strategy = self._lock, self._executable, self._strategy
        if not lock.try_acquire(False):
            return None
        try:
            with executable.lock:
                if lock.is_shared or lock.pending or executable.current is not strategy.instance:
                    return None
                strategy.instance.selector.last = strategy
                started = perf_counter()
                for name, dtype, shape, memory in self._inputs:
                    array = feeds.get(name)
                    if type(array) is not ndarray or array.dtype is not dtype or array.shape != shape:
                        return None
                    memory[...] = array
                loop = self._loop
                if loop.arrays is not self._rows:
                    loop.set_table(self._rows)
                uploaded = perf_counter()
                loop.run()
                computed = perf_counter()
                outputs = list(map(ndarray.copy, self._outputs))
                self._times = started, uploaded, computed, perf_counter()
            self._device_counters.transfers += strategy.transfers
            self._counters.short_runs += 1
            self.is_untold = True
            return outputs
        finally:
            lock.release()

    def tell(self) -> RunTrace:
        """The trace of the last run."""
        self.is_untold = False
        started, uploaded, computed, ended = self._times
        trace = self._strategy.make_trace(uploaded - started, computed - uploaded, ended - computed)
        trace.total_s, trace.tier = ended - started, self._executable.tier
        return trace
