"""KnownRuns: a session's runs that are like earlier ones and need no look at the model."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from ...cl.forks import check_fork, process
from ..execute.trace import RunTrace
from ..model.steady import SteadyRun, types_key
from ..model.turn import RunLock
from .host_memory import out_of_memory


class KnownRuns:
    """Part of InferenceSession."""

    _lock: RunLock
    _book: threading.Lock
    _steady: SteadyRun | None
    _known: WeakValueDictionary[Hashable, SteadyRun]
    _first_s: float | None
    _trace: RunTrace
    _runs: Counter[str]
    _others: Counter[str]

    def _run_steady(self, input_feed: Mapping[str, Any]) -> tuple[list[Any], RunTrace] | None:
        """All outputs, where this run is like an earlier one and that one needs no look at the model."""
        if process.is_child:
            check_fork()
        lock = self._lock
        if lock.is_shared or not lock.acquire_at_once(False):
            if not isinstance(input_feed, Mapping):
                return None
            found, is_known = self._run_beside(input_feed)
            if found is not None or not is_known:
                return found
            lock.acquire()
        elif lock.parked:
            lock.fetch_parked()
        try:
            if not isinstance(input_feed, Mapping):
                return None
            steady = self._steady
            started = time.perf_counter()
            try:
                found = steady.run(input_feed) if steady is not None and steady.is_current else None
                if found is None:
                    steady = self._known.get(types_key(input_feed))
                    if steady is None or not steady.is_current:
                        return None
                    found = steady.run(input_feed)
            except MemoryError as e:
                raise out_of_memory(e, "running the model") from e
            if found is None:
                return None
            outputs, trace = found
            trace.total_s = time.perf_counter() - started
            trace.first_s = self._first_s or 0.0
            self._steady, self._trace = steady, trace
            self._runs[trace.tier] += 1
            return outputs, trace
        finally:
            lock.release()

    def _run_beside(self, input_feed: Mapping[str, Any]) -> tuple[tuple[list[Any], RunTrace] | None, bool]:
        """All outputs, where this run need not wait for its turn; whether it is like an earlier one."""
        steady = self._known.get(types_key(input_feed))
        if steady is None or not steady.is_current:
            return None, False
        beside = self._lock.beside
        if not self._lock.is_shared:
            beside.tell()
        started = time.perf_counter()
        try:
            with beside.twin(steady.executable, steady.program) as twin:
                if twin is None:
                    return None, True
                found = steady.run(input_feed, twin, beside)
        except MemoryError as e:
            raise out_of_memory(e, "running the model") from e
        if found is None:
            return None, True
        outputs, trace = found
        trace.total_s = time.perf_counter() - started
        trace.first_s = self._first_s or 0.0
        with self._book:
            self._trace = trace
            self._others[trace.tier] += 1
        return (outputs, trace), True
