"""PolicySearch: a thread that looks for a mixed-precision policy while its session goes on in float32."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import OpaliteError
from ...ir.model_edits import ModelEdits
from ...ir.precision import PrecisionPolicy
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions
from ..model.model_interface import Model
from ..model.open_model import open_onnx
from ..model.run_lock import RunLock
from ..model.run_request import RunRequest
from .precision_choice import FP32, OutputError, PrecisionChoice, compare_outputs, first_limit, types_of

_log = logging.getLogger(__name__)
TRIAL = RunRequest(is_trial=True)
ROUNDS = 7
_MOST_S = 0.3  # of timing, if there are more rounds than two


class StopError(Exception):
    """The session was closed, or the process ends."""


@dataclass(frozen=True)
class FoundPolicy:
    """What a search ends with. model: one compiled by the choice's policy, ready to run; None where it is fp32."""

    choice: PrecisionChoice
    model: Model | None = None
    is_reusable: bool = True  # whether it may be kept for other processes


class PolicySearch:
    """A search for the nodes that must stay in float32 on `feeds`, which nobody else changes.

    Its models are its own, so that the session runs meanwhile. The process ends without it: between two trials it
    looks whether the main thread still lives.
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
        """keep: told of what was found, unless that may be otherwise in another process."""
        self._compiler, self._model, self._feeds, self._start = compiler, model, feeds, start
        self._edits, self._keep, self._compares_speed = edits, keep, compares_speed
        self.stop = threading.Event()
        self.step = "begun"
        self.found: FoundPolicy | None = None
        self._thread = threading.Thread(target=self._run, name="opalite-precision")
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended; `found` is None then if it was stopped."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over; whether it is."""
        self._thread.join(timeout)
        return self.is_over

    def _watch(self, step: str) -> None:
        self.step = step
        if self.stop.is_set() or not threading.main_thread().is_alive():
            raise StopError

    def _run(self) -> None:
        try:
            found = self._find()
            self._watch("found")
        except StopError:
            return
        except (OpaliteError, MemoryError) as e:
            found = FoundPolicy(
                PrecisionChoice(FP32, f"the search for nodes that can be stored in half failed: {e}"), is_reusable=False
            )
        except Exception as e:
            if not threading.main_thread().is_alive():
                return  # the interpreter shuts down, and lends no threads to builds any more
            _log.exception("the search for a precision policy failed")
            found = FoundPolicy(
                PrecisionChoice(FP32, f"the search for a policy failed: {type(e).__name__}: {e}"), is_reusable=False
            )
        if found.is_reusable:
            self._keep(found.choice)
        self.found = found

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
            self._watch,
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
            open_onnx(self._model, self._compiler.by(policy_word(p)), self._edits) for p in (policy, FP32)
        )
        runs = [Trial(model) for model in (narrow, reference)]
        self._watch("checked")
        got, want = (run(self._feeds) for run in runs)
        worst = compare_outputs(narrow.outputs, got, want)
        if worst.error > first_limit(tolerance) or runs[0].overflowed:
            return wide(f"the policy that was found changes an output by {worst}, more than half of {tolerance:g}")
        fp16_s = fp32_s = 0.0
        if self._compares_speed:
            fp16_s, fp32_s = time_alternately(*(run.timed(self._feeds) for run in runs))
            if fp16_s >= fp32_s:
                return wide(
                    f"with every node in half an output changes by {plain}; with {len(policy.fp32)} of {mixed.nodes} "
                    f"in fp32 by {worst}, but a run takes {1e3 * fp16_s:.3g} ms then, in fp32 {1e3 * fp32_s:.3g}"
                )
        choice = PrecisionChoice(policy, "", {types: worst}, plain, mixed.nodes, mixed.trials, fp16_s, fp32_s)
        return FoundPolicy(choice, narrow)


class Trial:
    """Runs of a model that are only to be compared. overflowed: whether half did not hold the values in one of them."""

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
        """A function that runs it and returns the seconds that took."""

        def run() -> float:
            started = time.perf_counter()
            self(feeds)
            return time.perf_counter() - started

        return run


def policy_word(policy: PrecisionPolicy) -> str | PrecisionPolicy:
    """A word for a policy that has one: sessions that ask for the word have plans in the cache."""
    return policy if policy.fp32 else policy.precision.value


def time_alternately(half: Callable[[], float], wide: Callable[[], float]) -> tuple[float, float]:
    """The least seconds of each, run in turn: what else the machine does only adds to them."""
    rounds: list[tuple[float, float]] = []
    while len(rounds) < ROUNDS and (len(rounds) < 2 or sum(map(sum, rounds)) < _MOST_S):
        rounds.append((half(), wide()))
    best: Sequence[float] = [min(times) for times in zip(*rounds, strict=True)]
    return best[0], best[1]
