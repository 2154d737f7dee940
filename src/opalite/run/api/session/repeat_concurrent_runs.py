"""RepeatConcurrentRuns: fast-path runs of a session that are concurrent with runs of other threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from ...execute.executable import Executable
from ...execute.run_trace import RunRecord, RunTrace
from ...model.repeat_run_fast_path import RepeatRun, types_key
from ...model.run_lock import RunLock
from ..values.host_memory_errors import out_of_memory


class RepeatConcurrentRuns:
    """Part of InferenceSession."""

    _lock: RunLock
    _record_lock: threading.Lock
    _run_record: RunRecord
    _last_repeat: RepeatRun | None
    _repeat_runs: WeakValueDictionary[Hashable, RepeatRun]
    _first_s: float | None
    _trace: RunTrace
    _other_runs: Counter[str]

    def _run_concurrently(self, input_feed: Mapping[str, Any]) -> tuple[tuple[list[Any], RunTrace] | None, bool]:
        """Run without the run lock, if a replica is free.

        Returns the outputs and trace, None if the run must wait for the lock; and whether an earlier run had inputs of
        the same types.
        """
        steady = self._repeat_runs.get(types_key(input_feed))
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
        with self._record_lock:
            self._trace = trace
            self._other_runs[trace.tier] += 1
        return (outputs, trace), True

    def _drop_replica(self, executable: Executable, twin: Executable) -> None:
        """Let go of the twin of an executable."""
        with self._record_lock:
            self._run_record.forget(twin, executable)

    def _replace_executable(self, old: Executable, new: Executable) -> None:
        """Drop references to an executable that another one has replaced."""
        with self._lock, self._record_lock:
            if self._last_repeat is not None and not self._last_repeat.is_current:
                self._last_repeat = None
            self._run_record.replace(old, new)

    def _forget_repeats(self) -> None:
        self._last_repeat = None
        self._repeat_runs = WeakValueDictionary()
