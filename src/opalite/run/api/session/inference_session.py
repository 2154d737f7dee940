"""InferenceSession: a model on a device, with the methods of onnxruntime's class of that name.

The base classes load and run the model, and have the other methods of onnxruntime's class; here are Opalite's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ....cl.device.driver_hints import hint_properties
from ....cl.device.fork_guard import check_fork, process
from ....errors import InputError, PlacementError
from ....ir.dtype import DType
from ....ir.precision import PrecisionPolicy
from ....knobs import LEVELS
from ....plan.bundle.bundle import is_bundle
from ....plan.program import NodeReport
from ...execute.compile_queue import Job, compile_queue
from ...execute.run_trace import RunTrace, Timing
from ...model.run_request import TuneRequest
from ...report.explanation import Explanation, describe_tier, explain
from ..options.execution_providers import CPU, OPENCL
from ..options.session_options import RECORD_ASSIGNMENT
from ..values.io_binding import IOBinding
from .session_queries import SessionApi

if TYPE_CHECKING:
    from ....tune.tuner import Progress
    from ....tune.tuning_report import GraphTuning
    from ...model.run_request import RunObserver
    from ...report.profile import Profile, Recorder
    from ...report.run_capture import RunCapture
    from ..caches.model_state import State
    from ..diagnostics.node_assignment import OrtEpAssignedSubgraph

Array = np.ndarray[Any, Any]


class InferenceSession(SessionApi):
    """A model ready to run on one OpenCL device. Thread-safe, picklable, a context manager.

    Runs of several threads share the device. Compilation for one run does not block other runs (docs/threads.md).

    path_or_bytes: path of an .onnx or .tflite file or an .opal bundle, or the bytes of a model.
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

    def io_binding(self) -> IOBinding:
        """Create an IOBinding, which binds inputs and outputs to memory, so that runs do not copy them."""
        return IOBinding(self)

    @property
    def last_timing(self) -> Timing:
        """The seconds of the last run, by part."""
        return self._dispatcher.trace

    @property
    def last_trace(self) -> RunTrace:
        """The trace of the last run: seconds, strategy, bytes transferred, waits of the host."""
        return self._dispatcher.trace

    def settle(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for background work (None: without limit); returns whether all is done.

        Background work is: building optimized programs, which replace generic ones (docs/tiers.md); planning for sizes
        that recur, without the delay while threads run concurrently (docs/threads.md); with precision='auto', searching
        for a policy; on PoCL, building the megakernel, which begins after twenty runs (docs/architecture.md). The next
        run uses the results. For benchmarks: run, settle, run 25 times, settle.
        """
        check_fork()
        with self._lock:
            executables = self._dispatcher.run_record.executables
        jobs: list[Job] = [job for e in executables for job in e.jobs]
        for owner in (self._background, self._auto):
            jobs += [] if owner is None else owner.jobs
        with self._rt.programs.expedite_builds():
            return compile_queue(self._rt).settle(jobs, timeout)

    def replay(self) -> float:
        """Repeat the launches of the last run without transfers; returns the seconds until the device has finished.

        Raises OpaliteError if the program has host steps, InputError before the first run.
        """
        check_fork()
        if any(e.is_released for e in self._dispatcher.run_record.executables):
            self.settle()  # until the replacement is built
        with self._lock.exclusive():
            if not self._dispatcher.has_run:
                raise InputError("the model has not run yet; run it once before replay()")
            started, record = time.perf_counter(), self._dispatcher.run_record
            for executable, program in zip(record.executables, record.programs, strict=True):
                with executable.entered() as is_there:
                    if not is_there:
                        raise InputError("other programs have replaced those of the last run; run the model again")
                    executable.replay(program)
            return time.perf_counter() - started

    def explain(self, input_feed: Mapping[str, Any] | None = None) -> Explanation:
        """Report the placement and kernel of each node, for the shapes of `input_feed`, or else of the last run.

        Runs the model if `input_feed` is given, or on zeros if it has not run. Such a run waits for optimized programs.
        """
        check_fork()
        if input_feed is not None:
            run_record = self._execute(input_feed, self._request(waits=True))[2]
        elif self._dispatcher.has_run:
            run_record = self._dispatcher.run_record
        else:
            with self._unchecked():
                run_record = self._execute(self._example_feeds(), self._request(waits=True))[2]
        found = explain(self.device.title, run_record)
        jobs = [] if self._background is None else self._background.jobs
        found.tier = describe_tier([e.tier for e in run_record.executables], len(jobs), self.stats().faults)
        found.precision = self.explain_precision()
        refused = self._rt.hints_refused
        found.notes.extend([refused] if refused else hint_properties(self._hints, self.device).sentences)
        return found

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Nodes grouped by provider, from `explain()`; a fused node counts as one.

        Runs the model on zeros if it has not run. Raises PlacementError unless the session config entry
        'session.record_ep_graph_assignment_info' is '1'.
        """
        if self._arguments["sess_options"]._config.get(RECORD_ASSIGNMENT) != "1":
            raise PlacementError(
                f"Session configuration entry '{RECORD_ASSIGNMENT}' must be set to \"1\" to retrieve the assignment; "
                "explain() needs no such entry"
            )
        from ..diagnostics.node_assignment import assigned

        return assigned(self.explain().nodes, OPENCL, CPU)

    def explain_precision(self) -> list[str]:
        """Sentences on the storage of float32 values; with precision='auto', on the measurements and the decision."""
        if self._auto is not None:
            return self._auto.describe()
        if is_bundle(self._arguments["path_or_bytes"]):
            return ["precision: as the bundle was compiled"]
        if self._compiler.options.precision == "auto":
            from ...precision.auto_model import describe_why_not_half

            return describe_why_not_half(self.device)
        from ...precision.precision_choice import policy_sentence

        return [policy_sentence(self._compiler.policy)]

    @property
    def precision_policy(self) -> PrecisionPolicy:
        """The precision policy of the next run: requested, or decided with precision='auto'."""
        return self._compiler.policy if self._auto is None else self._auto.policy

    @property
    def chooses_precision(self) -> bool:
        """Whether the session decides its precision: with precision='auto', on a device that has fp16."""
        return self._auto is not None

    @property
    def keeps_precision(self) -> bool:
        """Whether decisions of precision='auto' are stored in the cache folder for later sessions. True at first.

        Set it to False before the session runs on artificial inputs.
        """
        return self._auto is None or self._auto.stores_choice

    @keeps_precision.setter
    def keeps_precision(self, keeps: bool) -> None:
        if self._auto is not None:
            self._auto.stores_choice = keeps

    @contextmanager
    def _unchecked(self) -> Iterator[None]:
        """Inside, runs do not influence the decision of precision='auto'."""
        auto = self._auto
        if auto is None:
            yield
            return
        auto.checks = False
        try:
            yield
        finally:
            auto.checks = True

    def state(
        self,
        pairs: Mapping[str, str] | None = None,
        *,
        max_length: int | None = None,
        reserve: int = 256,
        cache: str = "model",
        sizes: Mapping[str, int] | None = None,
    ) -> State:
        """Create a State, which keeps KV caches and recurrent states from run to run.

        pairs: for each state input, the output with its next value; None finds them by name, such as
            past_key_values.0.key and present.0.key.
        max_length: positions of caches with an open size that does not grow.
        reserve: positions by which the capacity of growing caches increases.
        cache: 'model' stores caches in the model's type, 'int8' in 8 bits with a scale for each head and position.
        sizes: of open dimensions that no input determines, by name.
        Raises OptionError if no pair is found, or if caches cannot be stored in this way.
        """
        from ..caches.model_state import State

        return State(self, pairs, max_length=max_length, reserve=reserve, cache=cache, sizes=sizes)

    def profile(self, input_feed: Mapping[str, Any], iterations: int = 10) -> Profile:
        """Time every launch of `iterations` runs after a warm-up run, and measure the device's peak rates.

        Runs of other threads may interleave, and then affect the times.
        """
        return self._profile(input_feed, iterations)

    def capture(self, input_feed: Mapping[str, Any], iterations: int = 10) -> RunCapture:
        """The programs of runs on `input_feed`, with the graphs that they were planned from, and a profile."""
        from ...report.run_capture import Part, PartObserver, RunCapture

        found = RunCapture(self.device, "")
        found.profile = self._profile(input_feed, iterations, lambda recorder: PartObserver(found, recorder))
        explanation = self.explain()
        record = self._dispatcher.run_record
        known = {id(part.program) for part in found.parts}
        programs = {id(p): p for p in record.programs if id(p) not in known}
        found.parts.extend(map(Part, programs.values()))
        found.tasks = [item for item in record.items if isinstance(item, NodeReport)]
        found.notes = [*explanation.queueing, explanation.tier, *explanation.precision, *explanation.notes]
        if not is_bundle(self._arguments["path_or_bytes"]):
            found.options = self._compiler.plan_options(self.precision_policy)
            found.precision = str(self._compiler.options.precision)
        return found

    def _profile(
        self,
        input_feed: Mapping[str, Any],
        iterations: int,
        make_observer: Callable[[Recorder], RunObserver] | None = None,
    ) -> Profile:
        """See `profile`. make_observer: gives the observer of the runs."""
        from ...report.measure_peaks import measure_peaks
        from ...report.profile import Profile, Recorder

        check_fork()
        profile = Profile(self.device.title)
        recorder = Recorder(profile)
        observer = None if make_observer is None else make_observer(recorder)
        self._execute(input_feed, self._request(waits=True, observer=observer))
        profile.others.clear()
        with self._unchecked():
            for i in range(max(iterations, 1)):
                recorder.start(i)
                _, trace, run_record = self._execute(
                    input_feed, self._request(recorder=recorder, waits=True, observer=observer)
                )
                profile.wall_s.append(trace.total_s)
        with self._lock.exclusive():
            profile.peaks = measure_peaks(self._rt)
        ran = zip(run_record.executables, run_record.programs, strict=True)
        profile.queueing = [executable.queueing(program) for executable, program in ran]
        return profile

    def tune(
        self, input_feed: Mapping[str, Any], level: str = "fast", on_trial: Callable[[Progress], None] | None = None
    ) -> list[GraphTuning]:
        """Search kernels, parameters and work-groups for the shapes of `input_feed`, for this session and later ones.

        level: 'fast', 'normal', 'wide' or 'exhaustive'. on_trial: called after every trial. Returns a report on each
        graph of the model. After an interruption, the next call continues from the measurements so far. Raises
        InputError for a bundle, whose program is fixed: compile the model again with tune=.
        """
        if level == "none" or level not in LEVELS:
            raise InputError(f"tuning level {level!r} is not known; choose {', '.join(LEVELS[1:])}")
        model = self._arguments["path_or_bytes"]
        if is_bundle(model):
            raise InputError(f"{model} is compiled already; tune while compiling: opalite compile MODEL --tune {level}")
        check_fork()
        self.close()
        found = self._tunings = []
        self._execute(input_feed, self._request(tuning=TuneRequest(level, True, on_trial, found.append)))
        return list(found)

    @property
    def tunings(self) -> list[GraphTuning]:
        """Reports on the graphs that this session tuned, also before an interruption."""
        return list(self._tunings)

    @property
    def overflowed(self) -> bool:
        """Whether values of a run exceeded the range of fp16, so that the session now uses fp32."""
        return self._dispatcher.overflowed

    def example_shapes(self) -> dict[str, tuple[int, ...]]:
        """Example shapes by input: open dimensions are 1; a bundle has the shapes of its compilation."""
        return self._model.example_shapes(self.device)

    def _example_feeds(self) -> dict[str, Array]:
        shapes = self.example_shapes()
        feeds = {}
        for arg in self.get_inputs():
            if arg.dtype is None or arg.dtype is DType.STRING:
                raise InputError(f"input '{arg.name}' is {arg.type}: give explain() an example of the inputs")
            feeds[arg.name] = np.zeros(shapes[arg.name], arg.dtype.np)
        return feeds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release compiled programs and device memory. Another run compiles the model again."""
        if process.is_child:
            return  # the lock may have been held by another thread at the fork
        self._shutdown_threads()
        if self._inner_values is not None:
            self._inner_values.close()
        self._report_stats()
        if self._background is not None:
            self._background.drop()
        self._model.reset()
        if self._array_caches is not None:
            self._array_caches.clear()
        self._lock.concurrent.clear()
        if self._fallback_process is not None:
            self._fallback_process.close()
        self._dispatcher.reset()
