"""InferenceSession: a model on a device, with the methods of onnxruntime's class of that name.

Longer than 400 lines: loading, running and closing share the session's state.

session_queries.py has the other methods of onnxruntime's class, profile_and_tune.py the methods of Opalite alone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from numpy import ndarray

from .... import knobs
from ....cl.device.fork_guard import check_fork, process
from ....cl.memory.device_tensor import DeviceTensor
from ....cl.runtime import Runtime, find_runtime
from ....errors import BindingError, DeviceError, InputError, InputTypeError, OptionError
from ....ir.device.device_info import DeviceInfo
from ....ir.precision import PrecisionPolicy
from ...execute.launch_batches import Recorder
from ...execute.memory.io_transfer import Target
from ...execute.run_trace import RunRecord, RunTrace
from ...model.background.background_compile import BackgroundCompiler
from ...model.background.graph_compiler import Compiler
from ...model.compile_options import CompileOptions
from ...model.dispatcher import Dispatcher
from ...model.run_lock import RunLock
from ...model.run_request import RunRequest, TuneRequest
from ...model.session_counters import SessionCounters
from ..caches.shared_kv_cache import run_with_binding
from ..diagnostics.log_severity import SessionLog
from ..diagnostics.stats_file import log_at_exit, write_stats
from ..options.execution_providers import ProviderRequest, check_providers
from ..options.run_options import RunOptions, check_not_terminated, check_run_options, report_run
from ..options.session_options import SessionOptions, check_session_options, log_no_effect, parse_edits
from ..values.host_memory_errors import host_memory, out_of_memory
from ..values.io_binding import IOBinding, check_device
from ..values.ort_value import OrtValue
from .context_recovery import Recovery
from .open_session import (
    check_model_source,
    choose_device,
    compile_options,
    describe_source,
    make_profiler,
    open_model,
    parse_hints,
    write_optimized_model,
)
from .profile_and_tune import SessionTools

if TYPE_CHECKING:
    from ....tune.tuning_report import GraphTuning
    from ...model.kv_cache.kv_cache_runs import KVCacheRuns
    from ...model.kv_cache.multi_step_runs import MultiStepRuns


class InferenceSession(Recovery, SessionTools):
    """A model ready to run on one OpenCL device. Thread-safe, picklable, a context manager.

    Runs of several threads share the device. Compilation for one run does not block other runs (docs/threads.md).

    path_or_bytes: path of an .onnx file or .opal bundle, or the bytes of an ONNX model.
    sess_options: onnxruntime's SessionOptions; docs/dropin.md lists those with an effect. providers, provider_options:
        onnxruntime's execution providers (api/options/execution_providers.py); `device` overrides them.
    device: stable id, index '0:1', 'cpu', 'gpu', vendor, part of a name, or one of `opalite.devices()`; None takes
        OPALITE_DEVICE, else the best device.
    precision: 'fp32'; 'fp16' (fp16 storage, float sums); 'fp16_fast' (fp16 sums too); 'int8' (fp32, but matmuls with
        low-bit weights quantize their activations to 8 bits); 'auto' (fp16 if it is faster, and accurate enough on the
        first inputs, docs/precision.md); a PrecisionPolicy or its .json file, which keeps some nodes in fp32. None
        takes OPALITE_PRECISION, else 'fp32'.
    tolerance: the error of an output that 'auto' accepts, as a fraction of the output's largest magnitude; None takes
        OPALITE_TOLERANCE, else 0.001.
    memory: 'auto', 'buffer' or 'image' for tensors (docs/image2d.md); 'low' stores float weights of matmuls and
        embeddings in 8 bits (docs/weights.md), 'normal' in the model's type. None takes OPALITE_MEMORY, else 'auto'.
    tune: 'none', 'fast', 'normal', 'wide' or 'exhaustive'.
    performance, priority: 'high', 'normal' or 'low', hints to drivers that support them for clock rates and scheduling
        (docs/devices.md); None takes OPALITE_PERFORMANCE and OPALITE_PRIORITY, else the driver's defaults.
    strict: raise PlacementError for nodes that would run on the host.
    trust: run the sources and binaries stored in a bundle. Otherwise programs are emitted again from the graphs in the
        bundle, and compiled unless the cache has them. None takes OPALITE_TRUST_BUNDLES.

    Raises ModelFormatError, UnsupportedOpError, NoDeviceError, InputError, DeviceError for fp16_fast without fp16 sums.
    """

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
        self._fallback = bool(enable_fallback)
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
        hints = parse_hints(given, choice)
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
        self._choice, self._log, self._profiler = choice, log, profiler
        name, seconds = describe_source(given["path_or_bytes"]), dispatcher.load_s
        log.log(logging.INFO, f"loaded {name} for {rt.info.name} in {seconds:.3f} s")
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

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model on arrays by input name; returns the outputs `output_names`, all if None or empty.

        Inputs may be OrtValues; those on the session's device are not copied. Raises InputError for inputs that the
        model does not accept.
        """
        picked = self._all_outputs if output_names is None else self._pick_outputs(output_names)
        options = None if run_options is None else check_run_options(run_options)
        if options is not None:
            check_not_terminated(options)
        found, rt = None, self._rt
        try:
            found = self._dispatcher.run_cached(input_feed)
        except DeviceError as e:
            if not self._is_lost_by(e, rt):
                raise
        except MemoryError as e:
            raise out_of_memory(e, "running the model") from e
        outputs, trace = found or self._execute(input_feed, self._request(options))[:2]
        if options is not None:
            check_not_terminated(options)
        if options is not None or self._log.is_enabled(logging.DEBUG):
            report_run(options, self._log, trace.total_s)
        return [v.numpy() if type(v := outputs[i]) is DeviceTensor else v for i in picked]

    def io_binding(self) -> IOBinding:
        """Create an IOBinding, which binds inputs and outputs to memory, so that runs do not copy them."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on the bound memory, and wait. Raises BindingError for unfitting memory, and if no output is bound."""
        if not isinstance(iobinding, IOBinding):
            raise InputTypeError(f"run_with_iobinding takes an IOBinding, got {type(iobinding).__name__}")
        if iobinding.session is not self:
            raise OptionError("IOBinding must be used with the session that created it: session.io_binding()")
        options = check_run_options(run_options)
        check_not_terminated(options)
        self.check_not_lost("the bound memory", iobinding.rt)
        outputs = list(iobinding.outputs.values())
        if not outputs:
            raise BindingError(
                f"no output is bound; bind_output('{self._model.outputs[0].name}') leaves it to the host"
            )
        check_fork()
        targets = {o.name: o.target for o in outputs if o.on_device}
        try:
            found = run_with_binding(self, iobinding, self._request(options, targets))
        except InputError as e:
            raise BindingError(e.message) from e
        for output, i in zip(outputs, self._pick_outputs([o.name for o in outputs]), strict=True):
            output.store(found[i])

    def _request(
        self,
        options: RunOptions | None = None,
        targets: Mapping[str, Target] | None = None,
        recorder: Recorder | None = None,
        tuning: TuneRequest | None = None,
        waits: bool = False,
        unread: frozenset[str] = frozenset(),
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
        )

    def _stop_recording(self) -> None:
        self._dispatcher.forget_routes()

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release compiled programs and device memory. Another run compiles the model again."""
        if process.is_child:
            return  # the lock may have been held by another thread at the fork
        self._shutdown_threads()
        self._report_stats()
        if self._background is not None:
            self._background.drop()
        self._model.reset()
        self._lock.concurrent.clear()
        if self._fallback_process is not None:
            self._fallback_process.close()
        self._dispatcher.reset()

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
