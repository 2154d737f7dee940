"""AutoModel: a model whose precision is chosen by measurement: half storage only if it changes no output too much.

The first run of each size of inputs is computed in float32, which the caller gets, and in half. If the outputs agree
within the tolerance and half is faster, later runs are in half. If they do not agree, a background job looks for the
nodes that must stay in float32, while the session computes in float32 (background_policy_search.py). As long as the
float32 program exists, some more runs are checked. The choice is stored in the cache folder
(precision_choice.py).
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ... import knobs
from ...cl.runtime import find_runtime
from ...errors import InputError, OpaliteError
from ...ir.device.device_info import DeviceInfo
from ...ir.model_edits import ModelEdits
from ...ir.precision import PrecisionPolicy
from ..execute.ab_timing import least_interleaved_seconds
from ..execute.compile_queue import compile_queue
from ..execute.run_trace import RunTrace
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions, parse_tolerance
from ..model.executable_cache import ExecutableCache
from ..model.model_interface import Model
from ..model.onnx_model import OnnxModel
from ..model.plans.plan_key import file_stamp
from ..model.run_lock import RunLock
from ..model.run_request import PLAIN, RunRequest
from .background_policy_search import MOST_S, ROUNDS, ComparedRuns, PolicySearch, policy_word
from .precision_choice import (
    FP16,
    FP32,
    OutputError,
    PrecisionChoice,
    compare_outputs,
    copy_of,
    first_limit,
    open_precision_choices,
    types_of,
)

_log = logging.getLogger(__name__)
CHECKED_RUNS = (1, 2, 4, 8, 16)
"""Runs of each size of inputs that are also computed in float32, by the session that made the choice."""
MOST_SEARCHES = 3  # of a session; it stays in float32 after the last one failed


def why_not_half(device: DeviceInfo) -> str:
    """Reason why 'auto' is fp32 on `device`, whatever the model; '' if half may be faster."""
    if device.fast_half or knobs.get("OPALITE_TRY_HALF"):
        return ""
    if device.on_host:
        return "half storage brings nothing on a CPU, which converts at every access"
    return "the device has no half arithmetic, so that half storage is not expected to pay"


def describe_why_not_half(device: DeviceInfo) -> list[str]:
    """The sentences on 'auto' for a device on which half does not pay."""
    return ["precision: auto", f"  fp32 in all nodes: {why_not_half(device)}"]


class AutoModel:
    """A Model with precision 'auto'. Runs hold its lock, except those of the repeat-run fast path.

    stores_choice: whether later processes get the choice. checks: whether runs are checked. Both are False for made-up
    inputs.
    """

    def __init__(
        self, model: str | os.PathLike[str] | bytes, compiler: Compiler, edits: ModelEdits | None = None
    ) -> None:
        self._model, self._compiler, self._edits = model, compiler, edits
        self._stamp = file_stamp(model)
        self._cache = open_precision_choices(model, compiler.rt, compiler.options, edits)
        self._lock = threading.RLock()  # acquired before the run lock
        self._choice = self._cache.load() if self._cache is not None else None
        self._was_kept = self._choice is not None
        self._fp32_model: Model | None = None
        self._fp16_model: Model | None = None
        self._watched: dict[str, int] = {}  # runs by types of inputs, of which more will be checked
        self._search: PolicySearch | None = None
        self._searches = 0
        self.stores_choice = True
        self.checks = True
        about = self._active()
        self.inputs, self.outputs, self.overridable = about.inputs, about.outputs, about.overridable
        self.opset, self.meta = about.opset, about.meta

    @property
    def draws(self) -> bool:
        """Whether it may draw random numbers."""
        return self._active().draws

    @property
    def repeats(self) -> bool:
        """Whether the bytes of the file and the types of the inputs decide everything."""
        return self._active().repeats

    @property
    def policy(self) -> PrecisionPolicy:
        """The policy of the next run."""
        with self._lock:
            self._adopt()
            return FP32 if self._choice is None else self._choice.policy

    @property
    def is_decided(self) -> bool:
        """Whether the precision is chosen."""
        with self._lock:
            self._adopt()
            return self._choice is not None

    def chosen_model(self) -> Model:
        """The model for runs that are never checked, such as those of a state: the chosen one, or float32."""
        with self._lock:
            self._adopt()
            return self._active()

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays. InputError for feeds that do not fit."""
        return self._active().check_feeds(feeds)

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """A shape for every input."""
        return self._active().example_shapes(device)

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled executables."""
        return [cache for model in (self._fp32_model, self._fp16_model) if model is not None for cache in model.caches]

    def reset(self) -> None:
        """Drop compiled executables, and stop searching."""
        with self._lock:
            if self._search is not None:
                self._search.end()
                self._search = None
            self._watched.clear()
            for model in (self._fp32_model, self._fp16_model):
                if model is not None:
                    model.reset()

    @property
    def jobs(self) -> list[PolicySearch]:
        """The search, if one is under way. Thread-safe."""
        search = self._search
        return [] if search is None else [search]

    def settle(self) -> None:
        """Wait for the search, if one is under way."""
        compile_queue(self._compiler.rt).settle(self.jobs)

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, in float32 if this run is checked, and the trace."""
        with self._lock:
            outputs, trace = self._run(feeds, request)
            if trace.run_record is not None and (self._choice is None or self._watched or self._search is not None):
                trace.run_record.route = None  # runs like this one may have to be checked
        return outputs, trace

    def _run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        self._adopt()
        types = types_of(feeds)
        if self.checks and self._is_due(types):
            return self._run_checked(feeds, request, types)
        choice = self._choice
        if choice is None or choice.is_fp32:
            return self._in_fp32().run(feeds, request)
        outputs, trace = self._in_half(choice.policy).run(feeds, request)
        if trace.overflowed and self.checks:
            self._refute(feeds, types, OutputError(float("inf")), choice.policy)
        return outputs, trace

    def _is_due(self, types: str) -> bool:
        """Whether the run that begins is to be checked."""
        choice = self._choice
        if choice is None:
            return self._search is None
        if choice.is_fp32:
            return False
        if types in self._watched:
            self._watched[types] += 1
            return self._watched[types] in CHECKED_RUNS
        return types not in choice.checked

    def _run_checked(self, feeds: Mapping[str, Any], request: RunRequest, types: str) -> tuple[list[Any], RunTrace]:
        """The outputs in float32. Half is compared with them, and its choice made, confirmed or given up."""
        policy = FP16 if self._choice is None else self._choice.policy
        # Profiles show, and callers may terminate, the float32 run alone.
        fp32 = self._in_fp32()
        want, trace = fp32.run(feeds, replace(request, targets={}, is_trial=True))
        if fp32.draws:
            self._choose(PrecisionChoice(FP32, "the model draws random numbers, so that its runs cannot be compared"))
            return want, trace
        try:
            fp16 = self._in_half(policy)
            got, trial = fp16.run(feeds, RunRequest(tuning=request.tuning, is_trial=True, lock=request.lock))
        except (OpaliteError, MemoryError) as e:
            self._choose(PrecisionChoice(FP32, f"it could not be run in half: {e}"), is_reusable=False)
            return want, trace
        trace.add(trial)
        worst = OutputError(float("inf")) if trial.overflowed else compare_outputs(self.outputs, got, want)
        is_first = self._choice is None or types not in self._choice.checked
        tolerance = self._compiler.options.tolerance
        if worst.error > (first_limit(tolerance) if is_first else tolerance):
            self._refute(feeds, types, worst, policy)
            return want, trace
        choice = self._choice or PrecisionChoice(FP16, plain=worst)
        if self._choice is None and not knobs.get("OPALITE_TRY_HALF"):
            choice = self._compared(choice, feeds, request.lock)
        self._choose(choice if choice.is_fp32 else choice.with_check(types, worst))
        if not choice.is_fp32:
            trace.run_record = trial.run_record  # as later runs will
            self._watch(types)
        return want, trace

    def _compared(self, choice: PrecisionChoice, feeds: Mapping[str, Any], lock: RunLock | None) -> PrecisionChoice:
        """`choice` with its times and those of float32; float32 if it is as fast."""
        runs = [ComparedRuns(model, lock).timed(feeds) for model in (self._in_half(choice.policy), self._in_fp32())]
        fp16_s, fp32_s = least_interleaved_seconds(*runs, rounds=ROUNDS, most_s=MOST_S)
        if fp16_s < fp32_s:
            return replace(choice, fp16_s=fp16_s, fp32_s=fp32_s)
        why = (
            f"half is not faster: a run takes {1e3 * fp16_s:.3g} ms with every node in half, in fp32 {1e3 * fp32_s:.3g}"
        )
        return replace(choice, policy=FP32, why=why, fp16_s=fp16_s, fp32_s=fp32_s)

    def _watch(self, types: str) -> None:
        """Count the runs on inputs of `types`. Drop the float32 program when no more runs will be checked."""
        self._watched.setdefault(types, 1)
        if all(runs >= CHECKED_RUNS[-1] for runs in self._watched.values()):
            self._watched.clear()
            if self._fp32_model is not None:
                self._fp32_model.reset()

    def _refute(self, feeds: Mapping[str, Any], types: str, worst: OutputError, policy: PrecisionPolicy) -> None:
        """Switch to float32, because `policy` has error `worst` on `feeds`, and search for a mixed policy."""
        why = f"on inputs {types} half changes an output by {worst}; {self._compiler.options.tolerance:g} is allowed"
        if self._choice is not None:
            _log.warning("precision auto: %s; the session switches to fp32", why)
            self._choose(PrecisionChoice(FP32, why, plain=worst))
        if self._fp16_model is not None:
            self._fp16_model.reset()
            self._fp16_model = None
        if self._searches >= MOST_SEARCHES or self._has_changed():
            self._choose(PrecisionChoice(FP32, why, plain=worst))
            return
        self._searches += 1
        self._search = PolicySearch(
            self._compiler,
            self._model,
            {name: copy_of(value) for name, value in feeds.items()},
            policy,
            self._edits,
            self._keep if self.stores_choice else lambda choice: None,
            compares_speed=not knobs.get("OPALITE_TRY_HALF"),
        )
        weakref.finalize(self, self._search.end)
        compile_queue(self._compiler.rt).submit(self._search, self._search)

    def _adopt(self) -> None:
        """Use the result of a search that is over."""
        if self._search is None or not self._search.is_over:
            return
        found, self._search = self._search.found, None
        if found is None:
            return
        self._choice, self._was_kept = found.choice, False
        self._fp16_model = found.model
        if found.model is not None:
            for types in found.choice.checked:
                self._watch(types)

    def _choose(self, choice: PrecisionChoice, is_reusable: bool = True) -> None:
        """Use `choice` from now on."""
        if choice == self._choice:
            return
        self._choice, self._was_kept = choice, False
        if choice.is_fp32:
            self._watched.clear()
            if self._fp16_model is not None:
                self._fp16_model.reset()
                self._fp16_model = None
        if is_reusable and self.stores_choice:
            self._keep(choice)

    @property
    def _keep(self) -> Callable[[PrecisionChoice], None]:
        """A function that stores a choice for later processes, if it depends on the model's bytes alone."""
        cache, repeats, stamp, model = self._cache, self._in_fp32().repeats, self._stamp, self._model

        def keep(choice: PrecisionChoice) -> None:
            if cache is not None and repeats and file_stamp(model) == stamp:
                cache.save(choice)

        return keep

    def _active(self) -> Model:
        """The model of the next run."""
        if self._choice is None or self._choice.is_fp32:
            return self._in_fp32()
        return self._in_half(self._choice.policy)

    def _in_fp32(self) -> Model:
        if self._fp32_model is None:
            self._fp32_model = self._open(FP32)
        return self._fp32_model

    def _in_half(self, policy: PrecisionPolicy) -> Model:
        if self._fp16_model is None:
            self._fp16_model = self._open(policy)
        return self._fp16_model

    def _open(self, policy: PrecisionPolicy) -> Model:
        if self._has_changed():
            raise InputError(
                f"{self._model!s} was replaced since the session was opened, which needs it again to choose its "
                "precision; open a new session"
            )
        return OnnxModel(self._model, self._compiler.by(policy_word(policy)), self._edits)

    def _has_changed(self) -> bool:
        return bool(file_stamp(self._model) != self._stamp)

    def describe(self) -> list[str]:
        """The present choice and its reasons, in sentences."""
        with self._lock:
            self._adopt()
            lines = [f"precision: auto, tolerance {self._compiler.options.tolerance:g} of each output's largest value"]
            if self._search is not None:
                return [*lines, f"  fp32 for now, a policy is searched ({self._search.step})"]
            if self._choice is None:
                return [*lines, "  fp32 until half was compared with it on the first inputs"]
            lines += [f"  {line}" for line in self._choice.sentences()]
            return lines + (["  kept in the cache folder since an earlier session"] if self._was_kept else [])


def choose_precision(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    memory: str | None = None,
    tolerance: float | None = None,
    stores_choice: bool = True,
) -> tuple[PrecisionPolicy, list[str]]:
    """The policy that a session with precision 'auto' chooses on `feeds`, and the sentences that describe it.

    stores_choice: whether later sessions use it; False for made-up inputs.
    """
    rt = find_runtime(device)
    if why_not_half(rt.info):
        return FP32, describe_why_not_half(rt.info)
    options = CompileOptions("auto", memory or str(knobs.get("OPALITE_MEMORY")), tolerance=parse_tolerance(tolerance))
    auto = AutoModel(model, Compiler(rt, options))
    auto.stores_choice = stores_choice
    try:
        auto.run(auto.check_feeds(feeds))
        auto.settle()
        return auto.policy, auto.describe()
    finally:
        auto.reset()
