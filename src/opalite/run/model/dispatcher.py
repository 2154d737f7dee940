"""Dispatcher: the one entry of a session's runs, by a cached route for inputs of known types, else by the model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ...cl.device.fork_guard import check_fork, process
from ...cl.memory.device_tensor import DeviceTensor
from ...cl.programs.background_throttle import short_switch_interval
from ..execute.executable import Executable
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunRecord, RunTrace
from .route import Route, contents_of, types_key
from .run_lock import RunLock
from .session_counters import SessionCounters
from .short_route import ShortRoute

if TYPE_CHECKING:
    from .kv_cache.kv_cache_runs import KVCacheRuns, MultiStepRuns
    from .model_interface import Model
    from .run_request import RunRequest


class Dispatcher:
    """The runs of one session, and the record of the last one. Thread-safe.

    model: what runs go through without a route. load_s: seconds that loading the model took. trace: of the last run.
    has_run: whether there is a record of a run. overflowed: whether half storage overflowed in any run. short: the
    shortest way of runs like the last one, if there is any.
    """

    model: Model

    def __init__(self, lock: RunLock, counters: SessionCounters) -> None:
        self.counters = counters
        self.load_s = 0.0
        self.short: ShortRoute | None = None
        self._trace = RunTrace()
        self._route: Route | None = None
        self.overflowed = False
        self.has_run = False
        self._lock = lock
        self._book = threading.Lock()  # of the record
        self._record: RunRecord | Route = RunRecord()
        self._known: WeakValueDictionary[Hashable, Route] = WeakValueDictionary()
        self._looked_at: set[frozenset[str]] = {frozenset()}  # inputs whose contents routes depend on
        self._first_s = 0.0  # seconds of loading and of the first run
        self._resets = 0

    @property
    def run_record(self) -> RunRecord:
        """The executables, host steps and notes of the last run."""
        with self._book:
            record = self._record
        return record.run_record if isinstance(record, Route) else record

    @property
    def trace(self) -> RunTrace:
        """The trace of the last run."""
        if self.short is not None and self.short.is_untold:
            self._trace = self.short.tell()
            self._trace.first_s = self._first_s
        return self._trace

    @trace.setter
    def trace(self, trace: RunTrace) -> None:
        if self.short is not None:
            self.short.is_untold = False
        self._trace = trace

    @property
    def route(self) -> Route | None:
        """The route of runs like the last one, if there is any."""
        return self._route

    @route.setter
    def route(self, route: Route | None) -> None:
        if route is not self._route:
            self._trace, self.short = self.trace, None
            self._route = route
        if route is not None and route.whole is not None and self.short is None:
            self.short = ShortRoute(route, self._lock, self.counters)

    def run_cached(
        self,
        feeds: Mapping[str, Any],
        targets: Mapping[str, Target] | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order and the trace; None if no route is known for the feeds' types.

        targets: outputs by name that should stay on the device. check: called between segments; it raises if the run
        was terminated.
        """
        route = self.route
        if not (type(feeds) is dict or isinstance(feeds, Mapping)) or (route is None and not self._known):
            return None
        if process.is_child:
            check_fork()
        lock = self._lock
        if lock.is_shared or not lock.try_acquire(False):
            route = self._find(feeds)
            if route is None:
                return None
            if route.executable is None:
                return None  # the model lets other runs go between segments
            if not targets:
                shared = lock.concurrent
                if not lock.is_shared:
                    shared.note_contention()
                started = time.perf_counter()
                with shared.lease_replica(route.executable, route.program) as replica:
                    found = None if replica is None else route.run(feeds, None, replica, shared)
                    if found is not None:
                        return self._count(route, found, started)
            lock.acquire()
        elif lock.pending:
            lock.spill_to_host()
        try:
            started = time.perf_counter()
            found = route.run(feeds, targets, None, None, check) if route is not None and route.is_current else None
            if found is None:
                route = self._find(feeds)
                found = None if route is None else route.run(feeds, targets, None, None, check)
            return None if found is None or route is None else self._count(route, found, started)
        finally:
            lock.release()

    def _find(self, feeds: Mapping[str, Any]) -> Route | None:
        types = types_key(feeds)
        for names in self._looked_at:
            route = self._known.get((types, contents_of(feeds, names)))
            if route is not None and route.is_current:
                return route
        return None

    def _count(self, route: Route, found: tuple[list[Any], RunTrace], started: float) -> tuple[list[Any], RunTrace]:
        """`found` by `route`, which is the record of the last run now."""
        trace = found[1]
        with self._book:
            trace.total_s = time.perf_counter() - started
            trace.first_s = self._first_s
            self.trace = trace
            self.route = self._record = route
            self.counters.runs[trace.tier] += 1
        return found

    def run(
        self, feeds: Mapping[str, Any], request: RunRequest, runs: KVCacheRuns | MultiStepRuns | None = None
    ) -> tuple[list[Any], RunTrace, RunRecord]:
        """All outputs in order, the trace, and the record of the run.

        feeds: arrays and DeviceTensors by input. runs: of a state, in place of the model's.
        """
        if runs is None and request.is_plain and _is_bound(feeds, request):
            found = self.run_cached(feeds, request.targets, request.check)
            if found is not None:
                return *found, self.run_record
        model, resets, started = runs or self.model, self._resets, time.perf_counter()
        with short_switch_interval():
            outputs, trace = model.run(model.check_feeds(feeds), request)
        for cause, spent in (("plan", trace.import_s), ("tune", trace.tune_s), ("build", trace.build_s)):
            self.counters.add_wait(cause, spent)
        with self._book:
            trace.total_s = time.perf_counter() - started
            if not self._first_s:
                self._first_s = trace.total_s + self.load_s
            trace.first_s = self._first_s
            # A caller may keep the trace, which must hold no memory of the device.
            run_record, trace.run_record = trace.run_record or RunRecord(), None
            self.trace = trace
            self.overflowed = self.overflowed or trace.overflowed
            self.counters.runs[trace.tier] += trace.runs
            if self._resets == resets:
                self._record, self.has_run = run_record, True
                self.route = run_record.route if request.recorder is None else None
                if self.route is not None:
                    self.route.record(run_record)
                    self._known[self.route.key] = self.route
                    self._looked_at = self._looked_at | {self.route.looked_at}
        return outputs, trace, run_record

    def forget_routes(self) -> None:
        """Have the next runs go through the model."""
        self.route, self._known, self._looked_at = None, WeakValueDictionary(), {frozenset()}

    def reset(self) -> None:
        """Forget routes and the last run, so that nothing is held of what was compiled."""
        with self._lock, self._book:
            self._resets += 1
            self.forget_routes()
            self._record, self.has_run = RunRecord(), False

    def replace(self, old: Executable, new: Executable) -> None:
        """Release an executable that another has replaced."""
        with self._lock, self._book:
            if self.route is not None and not self.route.is_current:
                self.route = None
            if isinstance(self._record, RunRecord):
                self._record.replace(old, new)

    def drop_replica(self, executable: Executable, replica: Executable) -> None:
        """Release a replica of `executable`."""
        with self._book:
            if isinstance(self._record, RunRecord):
                self._record.forget(replica, executable)


def _is_bound(feeds: Mapping[str, Any], request: RunRequest) -> bool:
    """Whether values are on the device; callers look for routes of arrays before they ask for a run."""
    return bool(request.targets) or any(type(v) is DeviceTensor for v in feeds.values())
