"""SessionCore: the state of a session, how it is loaded, and one run of its model in this process."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from numpy import ndarray

from .... import knobs
from ....cl.device.driver_hints import make_hints
from ....cl.device.fork_guard import check_fork
from ....cl.runtime import Runtime, find_runtime
from ....errors import InputError, InputTypeError
from ....ir.device.device_info import DeviceInfo
from ....ir.precision import PrecisionPolicy
from ....plan.bundle.bundle import is_bundle
from ...execute.memory.io_transfer import Target
from ...execute.run_trace import RunRecord, RunTrace
from ...execute.step_schedule import Recorder
from ...model.background.background_compile import BackgroundCompiler
from ...model.background.graph_compiler import Compiler
from ...model.compile_options import CompileOptions
from ...model.dispatcher import Dispatcher
from ...model.run_lock import RunLock
from ...model.run_request import RunObserver, RunRequest, TuneRequest
from ...model.session_counters import SessionCounters
from ..caches.match_state_outputs import match_names
from ..diagnostics.ort_logging import SessionLog
from ..diagnostics.stats_file import log_at_exit, write_stats
from ..options.execution_providers import ProviderRequest, check_providers
from ..options.run_options import RunOptions, check_not_terminated
from ..options.session_options import (
    CACHE_VIEWS,
    SessionOptions,
    check_session_options,
    log_no_effect,
    parse_edits,
)
from ..values.host_memory_errors import host_memory, out_of_memory
from ..values.io_binding import check_device
from ..values.ort_value import OrtValue
from .open_session import (
    check_model_source,
    choose_device,
    compile_options,
    describe_source,
    make_profiler,
    open_model,
    write_optimized_model,
)

if TYPE_CHECKING:
    from ....tune.tuning_report import GraphTuning
    from ...model.kv_cache.kv_cache_runs import KVCacheRuns, MultiStepRuns
    from ...report.session_stats import SessionStats
    from ..caches.array_kv_cache import ArrayKVCaches
    from .inference_session import InferenceSession


class SessionCore:
    """The base of InferenceSession, which documents the arguments."""

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        device: str | DeviceInfo | None = None,
        precision: str | os.PathLike[str] | PrecisionPolicy | None = None,
        memory: str | None = None,
        tune: str | None = None,
        strict: bool = False,
        tolerance: float | None = None,
        trust: bool | None = None,
        performance: str | None = None,
        priority: str | None = None,
        enable_fallback: int = 1,
        read_config_from_model: int = 0,
        disabled_optimizers: Any = None,
    ) -> None:
        """The last three arguments are onnxruntime's and have no effect."""
        request = device.id if isinstance(device, DeviceInfo) else device
        if not isinstance(request, str | None):
            raise InputError(f"device is a text such as 'gpu' or '0:1', got {device!r}; `opalite devices` lists them")
        self._arguments: dict[str, Any] = {
            "path_or_bytes": check_model_source(path_or_bytes),
            "sess_options": check_session_options(sess_options),
            "providers": providers,
            "provider_options": provider_options,
            "device": request,
            "precision": precision,
            "memory": memory,
            "tune": tune,
            "strict": strict,
            "tolerance": tolerance,
            "trust": trust,
            "performance": performance,
            "priority": priority,
        }
        self._lock = RunLock()
        self._recovery_lock = threading.Lock()
        self._start(check_providers(providers, provider_options))

    def _start(self, requested: ProviderRequest) -> None:
        """Load the model for the requested providers. If loading fails, the session is unchanged."""
        started, started_ns = time.perf_counter(), time.monotonic_ns()
        given = self._arguments
        sess_options: SessionOptions = given["sess_options"]
        profiler = make_profiler(sess_options)
        log = SessionLog(sess_options.log_severity_level, sess_options.logid)
        choice = choose_device(given, requested, sess_options)
        options = compile_options(given, choice, sess_options)
        log_no_effect(sess_options, log)
        hints = make_hints(**{what: given[what] or choice.options.get(what) for what in ("performance", "priority")})
        rt = find_runtime(choice.device, hints)
        edits = parse_edits(sess_options)
        counters = SessionCounters()
        dispatcher = Dispatcher(self._lock, counters)
        background = self._start_background(rt, options, dispatcher)
        compiler = Compiler(rt, options, background, counters)
        compiler.prestart_workers()
        with host_memory("loading the model"):
            model, auto = open_model(given["path_or_bytes"], compiler, edits)
        self._background, self._counters = background, counters
        _ = compiler.policy  # raises for an unsupported precision now instead of at the first run
        self._rt, self._compiler, self._model, self._auto = rt, compiler, model, auto
        self._hints = hints
        dispatcher.model = model
        dispatcher.load_s = time.perf_counter() - started
        self._dispatcher = dispatcher
        self._lock.concurrent.on_drop = weakref.WeakMethod(dispatcher.drop_replica)
        self._reported_runs = 0  # runs in the statistics written so far
        log_at_exit(self)
        self._outputs = {a.name: i for i, a in enumerate(model.outputs)}
        self._all_outputs = list(range(len(model.outputs)))
        self._tunings: list[GraphTuning] = []
        self._array_caches = self._open_array_caches(sess_options)
        self._choice, self._log, self._profiler = choice, log, profiler
        name, seconds = describe_source(given["path_or_bytes"]), dispatcher.load_s
        log.log(logging.INFO, f"loaded {name} for {rt.info.title} in {seconds:.3f} s")
        if profiler is not None:
            profiler.add_session("model_loading", started_ns, device=rt.info.id)
        shapes = {a.name: a.shape for a in model.inputs}
        write_optimized_model(sess_options, given["path_or_bytes"], edits, shapes, rt.info.id)

    def _start_background(
        self, rt: Runtime, options: CompileOptions, dispatcher: Dispatcher
    ) -> BackgroundCompiler | None:
        """The compiler of optimized programs while generic ones run; None if runs wait for optimized programs.

        Runs wait if tuning or precision 'auto' measures them, and if the device cannot build in the background.
        """
        before: BackgroundCompiler | None = getattr(self, "_background", None)
        if before is not None:
            before.close()
        waits = options.tune != "none" or options.precision == "auto" or not rt.programs.may_build_in_background
        if waits or not knobs.get("OPALITE_TIERS"):
            return None
        background = BackgroundCompiler(rt, dispatcher.replace)
        weakref.finalize(self, background.close).atexit = False
        return background

    def _open_array_caches(self, options: SessionOptions) -> ArrayKVCaches | None:
        """The growing caches of plain runs; None if there are none, or if runs shall copy them."""
        if options._config.get(CACHE_VIEWS) == "0" or is_bundle(self._arguments["path_or_bytes"]):
            return None
        pairs = [p for p in match_names(self._model.inputs, self._model.outputs) if p.time is not None]
        pairs = [p for p in pairs if not p.is_cross]
        if not pairs:
            return None
        from ..caches.array_kv_cache import ArrayKVCaches  # few models have caches

        return ArrayKVCaches(cast("InferenceSession", self), pairs)

    @property
    def device(self) -> DeviceInfo:
        """The session's device."""
        return self._rt.info

    @property
    def runtime(self) -> Runtime:
        """The context, queue, memory and counters of the device, shared by its sessions."""
        return self._rt

    @property
    def opset(self) -> int:
        """The opset version of the default domain; 0 for a bundle."""
        return self._model.opset

    def _request(
        self,
        options: RunOptions | None = None,
        targets: Mapping[str, Target] | None = None,
        recorder: Recorder | None = None,
        tuning: TuneRequest | None = None,
        waits: bool = False,
        unread: frozenset[str] = frozenset(),
        observer: RunObserver | None = None,
    ) -> RunRequest:
        """The parameters of a run besides its inputs."""
        return RunRequest(
            targets or {},
            recorder or self._profiler,
            None if options is None else partial(check_not_terminated, options),
            tuning or TuneRequest(on_report=self._tunings.append),
            waits=waits,
            lock=self._lock,
            unread=unread,
            observer=observer,
        )

    def _execute_here(
        self, input_feed: Mapping[str, Any], request: RunRequest, appending: KVCacheRuns | MultiStepRuns | None = None
    ) -> tuple[list[Any], RunTrace, RunRecord]:
        """Run the model in this process; see `Recovery._execute`."""
        check_fork()
        if not isinstance(input_feed, Mapping):
            example = ", ".join(f"'{a.name}': array" for a in self._model.inputs)
            raise InputTypeError(f"inputs are a dict {{{example}}}, got {type(input_feed).__name__}")
        values = {n: v.value if isinstance(v, OrtValue) else v for n, v in input_feed.items()}
        for name, value in values.items():
            if type(value) is not ndarray:
                check_device("input", name, value, self._rt)
        started_ns = time.monotonic_ns()
        try:  # not host_memory: a context manager costs too much for each token of a decoder
            found = self._dispatcher.run(values, request, appending)
        except MemoryError as e:
            raise out_of_memory(e, "running the model") from e
        if self._profiler is not None:
            self._profiler.add_run(started_ns)
        return found

    def _asks_for_inner(self, names: Sequence[str]) -> bool:
        """Whether `names` has values that are no outputs. InputTypeError if it is no list of names."""
        known = self._outputs
        if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
            return False  # `_pick_outputs` says what is wrong
        return any(n not in known for n in names)

    def _pick_outputs(self, names: Sequence[str] | None) -> list[int]:
        if names is None or names == "":
            return self._all_outputs
        known = self._outputs
        if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
            raise InputTypeError(f"output names are a list such as {list(known)[:1]}, or None for all; got {names!r}")
        if not names:
            return self._all_outputs
        unknown = [n for n in names if n not in known]
        if unknown:
            raise InputError(f"no output is named {unknown[0]!r}; the model's outputs are {', '.join(known)}")
        return [known[n] for n in names]

    def stats(self) -> SessionStats:
        """Statistics since the session was opened: runs, plans, programs, waits by cause, memory by kind."""
        from ...report.session_stats import make_stats

        runs = {tier or "host": count for tier, count in self._counters.runs_by_tier.items()}
        last = (self._dispatcher.trace.tier or "host") if runs else ""
        return make_stats(runs, last, self._counters, self._background, self._lock, self._model.caches)

    def _report_stats(self) -> None:
        """Write statistics to the file of OPALITE_STATS, if there were runs since the last report."""
        runs = self._counters.run_count
        if runs > self._reported_runs:
            self._reported_runs = runs
            model = self._arguments["path_or_bytes"]
            write_stats("" if isinstance(model, bytes) else os.fspath(model), self._rt.info.id, self.stats)

    def __getstate__(self) -> dict[str, Any]:
        return self._arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
