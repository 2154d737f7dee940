"""PolicySearch: a background job that finds a mixed-precision policy while its session computes in float32."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from ...ir.model_edits import ModelEdits
from ...ir.precision import PrecisionPolicy
from ..execute.ab_timing import least_interleaved_seconds
from ..execute.compile_queue import Job
from ..model.background.background_compile import describe_error
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions
from ..model.model_interface import Model
from ..model.onnx_model import OnnxModel
from ..model.run_lock import RunLock
from ..model.run_request import RunRequest
from .precision_choice import FP32, OutputError, PrecisionChoice, compare_outputs, first_limit, types_of

TRIAL = RunRequest(is_trial=True)
ROUNDS = 7
MOST_S = 0.3  # of timing, if there are more rounds than two


class StopError(Exception):
    """The session was closed, or the interpreter ends."""


class FoundPolicy(NamedTuple):
    """The result of a search, with the model compiled by the policy; None if that is fp32."""

    choice: PrecisionChoice
    model: Model | None = None


class PolicySearch(Job):
    """A search for the nodes that must stay in float32 on `feeds`, which no other thread changes.

    It has models of its own, so that the session runs meanwhile. It stops between two trials once it is over, or the
    interpreter ends. step: what it does, in words. found: its result, None if it was stopped.
    """

    def __init__(
        self,
        compiler: Compiler,
        model: str | os.PathLike[str] | bytes,
        feeds: Mapping[str, Any],
        start: PrecisionPolicy,
        edits: ModelEdits | None,
        keep: Callable[[PrecisionChoice], None],
        *,
        compares_speed: bool,
    ) -> None:
        """keep: called with the result, unless the search failed."""
        super().__init__()
        self._compiler, self._model, self._feeds, self._start = compiler, model, feeds, start
        self._edits, self._keep, self._compares_speed = edits, keep, compares_speed
        self.step = "begun"
        self.found: FoundPolicy | None = None

    def _on_step(self, step: str) -> None:
        self.step = step
        if self.stops():
            raise StopError

    def run(self) -> None:
        """See Job.run."""
        with suppress(StopError):
            found = self._find()
            self._on_step("found")
            self._keep(found.choice)
            self.found = found

    def fail(self, error: Exception) -> None:
        """Choose float32, for this session alone."""
        why = f"the search for nodes that can be stored in half failed: {describe_error(error)}"
        self.found = FoundPolicy(PrecisionChoice(FP32, why))

    def _find(self) -> FoundPolicy:
        from ..model.imported_model import ImportedModel
        from .find_mixed_policy import find_policy_on  # imports onnx

        tolerance = self._compiler.options.tolerance
        mixed = find_policy_on(
            Compiler(self._compiler.rt, CompileOptions(memory=self._compiler.options.memory)),
            ImportedModel(self._model, self._edits),
            self._feeds,
            self._start,
            tolerance,
            self._on_step,
        )
        policy, plain = mixed.policy, OutputError(mixed.plain)
        types = types_of(self._feeds)

        def wide(why: str) -> FoundPolicy:
            return FoundPolicy(PrecisionChoice(FP32, why, {types: OutputError()}, plain, mixed.nodes, mixed.trials))

        if len(policy.fp32) >= mixed.nodes:
            return wide(
                f"with every node in half an output changes by {plain}, and no part of the {mixed.nodes} nodes can be "
                f"stored in half within {tolerance:g} ({mixed.trials} trials)"
            )
        narrow, reference = (
            OnnxModel(self._model, self._compiler.by(policy_word(p)), self._edits) for p in (policy, FP32)
        )
        runs = [ComparedRuns(model) for model in (narrow, reference)]
        self._on_step("checked")
        got, want = (run(self._feeds) for run in runs)
        worst = compare_outputs(narrow.outputs, got, want)
        if worst.error > first_limit(tolerance) or runs[0].overflowed:
            return wide(f"the policy that was found changes an output by {worst}, more than half of {tolerance:g}")
        fp16_s = fp32_s = 0.0
        if self._compares_speed:
            fp16_s, fp32_s = least_interleaved_seconds(
                *(run.timed(self._feeds) for run in runs), rounds=ROUNDS, most_s=MOST_S
            )
            if fp16_s >= fp32_s:
                return wide(
                    f"with every node in half an output changes by {plain}; with {len(policy.fp32)} of {mixed.nodes} "
                    f"in fp32 by {worst}, but a run takes {1e3 * fp16_s:.3g} ms then, in fp32 {1e3 * fp32_s:.3g}"
                )
        choice = PrecisionChoice(policy, "", {types: worst}, plain, mixed.nodes, mixed.trials, fp16_s, fp32_s)
        return FoundPolicy(choice, narrow)


class ComparedRuns:
    """Runs of a model that are only compared. overflowed: half could not represent a value in one of them."""

    def __init__(self, model: Model, lock: RunLock | None = None) -> None:
        """lock: of a session that runs the same programs."""
        self._model = model
        self._request = replace(TRIAL, lock=lock)
        self.overflowed = False

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs."""
        outputs, trace = self._model.run(feeds, self._request)
        self.overflowed = self.overflowed or trace.overflowed
        return outputs

    def timed(self, feeds: Mapping[str, Any]) -> Callable[[], float]:
        """A function that runs the model and returns the seconds."""

        def run() -> float:
            started = time.perf_counter()
            self(feeds)
            return time.perf_counter() - started

        return run


def policy_word(policy: PrecisionPolicy) -> str | PrecisionPolicy:
    """The word of a policy that has one: plans of sessions with this word are in the cache."""
    return policy if policy.fp32 else policy.precision.value
