"""SessionTools: what tools ask of a session beside runs: to explain, profile, tune and time them."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....cl.device.driver_hints import Hints, hint_properties
from ....cl.device.fork_guard import check_fork
from ....cl.runtime import Runtime
from ....errors import InputError
from ....ir.dtype import DType
from ....ir.precision import PrecisionPolicy
from ....knobs import LEVELS
from ....plan.bundle.bundle import is_bundle
from ...execute.run_trace import Ran, RunTrace, Timing
from ...model.background.background_compile import BackgroundCompiler
from ...model.background.graph_compiler import Compiler
from ...model.run_request import RunRequest, TuneRequest
from ...model.session_counters import SessionCounters
from ...report.explanation import Explanation, describe_tier, explain
from .session_queries import SessionApi

if TYPE_CHECKING:
    from ....tune.tuner import Progress
    from ....tune.tuning_report import GraphTuning
    from ...execute.launch_batches import Recorder
    from ...precision.auto_model import AutoModel
    from ...report.profile import Profile
    from ...report.session_stats import SessionStats
    from ..caches.model_state import State
    from .inference_session import InferenceSession

Array = np.ndarray[Any, Any]


class SessionTools(SessionApi):
    """Opalite's own calls. The session itself loads the model and runs it."""

    _rt: Runtime
    _hints: Hints
    _compiler: Compiler
    _background: BackgroundCompiler | None
    _counters: SessionCounters
    _auto: AutoModel | None
    _trace: RunTrace
    _ran: Ran
    _has_run: bool
    _repeats: Counter[str]
    _other_runs: Counter[str]
    _overflowed: bool
    _tunings: list[GraphTuning]

    @abstractmethod
    def _request(
        self, *, recorder: Recorder | None = None, tuning: TuneRequest | None = None, waits: bool = False
    ) -> RunRequest:
        """What a run is asked beside its inputs."""

    @abstractmethod
    def _execute(self, input_feed: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace, Ran]:
        """All outputs in order, what the run did, and by what."""

    @abstractmethod
    def close(self) -> None:
        """Release compiled programs and device memory."""

    @property
    def last_timing(self) -> Timing:
        """Where the time of the last run went."""
        return self._trace

    @property
    def last_trace(self) -> RunTrace:
        """What the last run did: its seconds, by which strategy, what crossed, how often the host waited."""
        return self._trace

    def settle(self, timeout: float | None = None) -> bool:
        """Wait, at most `timeout` seconds, for what is done in the background.

        It is the building of programs made for the model, which are used from the next run on; until then general ones
        serve (docs/tiers.md). Plans for sizes that came back, which are put off while threads meet (docs/threads.md),
        are made at once. With precision='auto' it is the search for a policy, by which the run after it goes. On PoCL
        it is the step loop, which is begun once a model has run twenty times (docs/architecture.md), and used from the
        run on that finds it ready. Returns whether nothing is under way any more. For benchmarks: run, settle, run 25
        times, settle.
        """
        check_fork()
        with self._lock:
            executables = self._ran.executables
        end = None if timeout is None else time.monotonic() + timeout
        waits: list[Callable[[float | None], bool]] = [e.settle for e in executables]
        if self._background is not None:
            waits.append(self._background.settle)
        if self._auto is not None:
            waits.append(self._auto.settle)
        with self._rt.programs.expedite_builds():
            done = [wait(None if end is None else max(0.0, end - time.monotonic())) for wait in waits]
        return all(done)

    def stats(self) -> SessionStats:
        """What the session did since it was opened: runs, plans, programs, waits by cause, memory by kind."""
        from ...report.session_stats import make_stats

        runs = {tier or "host": count for tier, count in (self._repeats + self._other_runs).items()}
        last = (self._trace.tier or "host") if runs else ""
        return make_stats(runs, last, self._counters, self._background, self._lock, self._model.caches)

    def replay(self) -> float:
        """Repeat the launches of the last run on the inputs that are on the device; seconds until all has finished.

        No transfer, no look at shapes: what computing costs by itself. OpaliteError where a host step stands between;
        InputError before the first run.
        """
        check_fork()
        if any(e.is_released for e in self._ran.executables):
            self.settle()  # what takes its place is being made
        with self._lock.alone():
            if not self._has_run:
                raise InputError("there is no run to repeat yet; run the model once before replay()")
            started = time.perf_counter()
            for executable in self._ran.executables:
                with executable.entered() as is_there:
                    if not is_there:
                        raise InputError("other programs take the place of the last run's; run the model again")
                    executable.replay()
            return time.perf_counter() - started

    def explain(self, input_feed: Mapping[str, Any] | None = None) -> Explanation:
        """Where each node runs and why, for the shapes of `input_feed`, else those run last, else the model's own.

        Of shapes that it runs itself it tells by the programs made for the model, for which it waits.
        """
        check_fork()
        if input_feed is not None:
            ran = self._execute(input_feed, self._request(waits=True))[2]
        elif self._has_run:
            ran = self._ran
        else:
            with self._unchecked():
                ran = self._execute(self._example_feeds(), self._request(waits=True))[2]
        found = explain(self.device.name, ran)
        jobs = [] if self._background is None else self._background.jobs
        found.tier = describe_tier([e.tier for e in ran.executables], len(jobs), self.stats().faults)
        found.precision = self.explain_precision()
        refused = self._rt.hints_refused
        found.notes.extend([refused] if refused else hint_properties(self._hints, self.device).sentences)
        return found

    def explain_precision(self) -> list[str]:
        """Sentences on how float32 values are stored, and with precision='auto' on what was measured and decided."""
        if self._auto is not None:
            return self._auto.describe()
        if self._is_bundle:
            return ["precision: as the bundle was compiled"]
        if self._compiler.options.precision == "auto":
            from ...precision.auto_model import describe_why_not_half

            return describe_why_not_half(self.device)
        from ...precision.precision_choice import policy_sentence

        return [policy_sentence(self._compiler.policy)]

    @property
    def precision_policy(self) -> PrecisionPolicy:
        """By what the next run goes: asked for, or with precision='auto' decided. A bundle's program is fixed."""
        return self._compiler.policy if self._auto is None else self._auto.policy

    @property
    def chooses_precision(self) -> bool:
        """Whether precision='auto' was asked for and the device makes it a question."""
        return self._auto is not None

    @property
    def keeps_precision(self) -> bool:
        """Whether what precision='auto' decides is kept in the cache folder for later sessions, as it is at first.

        Set it to False before the session runs on made-up inputs, by which later sessions should not go.
        """
        return self._auto is None or self._auto.stores_choice

    @keeps_precision.setter
    def keeps_precision(self, keeps: bool) -> None:
        if self._auto is not None:
            self._auto.stores_choice = keeps

    @contextmanager
    def _unchecked(self) -> Iterator[None]:
        """Inside, nothing is decided by the inputs that are run."""
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
        """What the model carries from run to run, kept for it: caches of keys and values, recurrent states.

        pairs: the output that is each input's next value, by input; None finds them by their names, such as
        past_key_values.0.key and present.0.key. max_length: positions of caches whose size the model leaves open and
        does not change. reserve: positions for which growing caches get room at once. cache: 'model' keeps caches in
        the model's type, 'int8' in 8 bits, with a scale for each head and position. sizes: of dimensions that the model
        leaves open and no input tells, by name. OptionError where nothing looks like state, or where caches cannot be
        kept so.
        """
        from ..caches.model_state import State

        return State(
            cast("InferenceSession", self), pairs, max_length=max_length, reserve=reserve, cache=cache, sizes=sizes
        )

    def profile(self, input_feed: Mapping[str, Any], iterations: int = 10) -> Profile:
        """Times of every launch of `iterations` runs after a warm-up, with the device's measured peaks.

        Runs of other threads go on between them and count among what the machine does otherwise.
        """
        from ...report.measure_peaks import measure_peaks
        from ...report.profile import Profile, Recorder

        check_fork()
        self._execute(input_feed, self._request(waits=True))
        profile = Profile(self.device.name)
        recorder = Recorder(profile)
        with self._unchecked():
            for i in range(max(iterations, 1)):
                recorder.start(i)
                _, trace, ran = self._execute(input_feed, self._request(recorder=recorder, waits=True))
                profile.wall_s.append(trace.total_s)
        with self._lock.alone():
            profile.peaks = measure_peaks(self._rt)
        profile.queueing = [e.queueing for e in ran.executables]
        return profile

    def tune(
        self, input_feed: Mapping[str, Any], level: str = "fast", watch: Callable[[Progress], None] | None = None
    ) -> list[GraphTuning]:
        """Search kernels, parameters and work-groups for the shapes of `input_feed`, for this session and later ones.

        level: 'fast', 'normal', 'wide' or 'exhaustive'. watch: told of every trial. Returns a report on each graph of
        the model. What was measured before an interruption is kept, and taken up by the next call.
        InputError for a bundle, whose program is fixed: compile the model again with tune=.
        """
        if level == "none" or level not in LEVELS:
            raise InputError(f"tuning level {level!r} is not known; choose {', '.join(LEVELS[1:])}")
        model = self._arguments["path_or_bytes"]
        if not isinstance(model, bytes) and is_bundle(model):
            raise InputError(f"{model} is compiled already; tune while compiling: opalite compile MODEL --tune {level}")
        check_fork()
        self.close()
        found = self._tunings = []
        self._execute(input_feed, self._request(tuning=TuneRequest(level, True, watch, found.append)))
        return list(found)

    @property
    def _is_bundle(self) -> bool:
        model = self._arguments["path_or_bytes"]
        return not isinstance(model, bytes) and is_bundle(model)

    @property
    def tunings(self) -> list[GraphTuning]:
        """Reports on what this session tuned, also before it was interrupted."""
        return list(self._tunings)

    @property
    def overflowed(self) -> bool:
        """Whether half could not hold the values of a run, so that fp32 took over."""
        return self._overflowed

    def example_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes to try the model with, by input: open dimensions are 1; a bundle's are those it was compiled for."""
        return self._model.example_shapes(self.device)

    def _example_feeds(self) -> dict[str, Array]:
        shapes = self.example_shapes()
        feeds = {}
        for arg in self.get_inputs():
            if arg.dtype is None or arg.dtype is DType.STRING:
                raise InputError(f"input '{arg.name}' is {arg.type}: give explain() an example of the inputs")
            feeds[arg.name] = np.zeros(shapes[arg.name], arg.dtype.np)
        return feeds
