"""Recovery: repeats a session's runs after a kernel's fault has ended the context of its device.

The session loads the model again in a new context. NVIDIA's driver creates no second context in the same process; there
the runs continue in another process. The run that met the fault is repeated. Values that only the device held are lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.runtime import Runtime
from ....errors import DeviceError, DeviceLostError
from ...execute.run_trace import RunRecord, RunTrace
from ...model.run_request import RunRequest
from ..options.execution_providers import check_providers
from ..process.session_process import SessionProcess
from ..values.ort_value import OrtValue
from .session_core import SessionCore

if TYPE_CHECKING:
    from ...model.kv_cache.kv_cache_runs import KVCacheRuns, MultiStepRuns


class Recovery(SessionCore):
    """A session whose runs survive the loss of its device. may_recover: False raises DeviceLostError instead."""

    may_recover = True
    _fallback_process: SessionProcess | None = None

    def _execute(
        self, input_feed: Mapping[str, Any], request: RunRequest, appending: KVCacheRuns | MultiStepRuns | None = None
    ) -> tuple[list[Any], RunTrace, RunRecord]:
        """Run the model; returns all outputs in order, the trace of the run, and the executables that it used.

        An output is an array, or a DeviceTensor if it was a target or is an input.
        """
        rt = self._rt
        fault: DeviceError | None = None
        if not rt.lost:
            try:
                return self._execute_here(input_feed, request, appending)
            except DeviceError as e:
                if not self._is_lost_by(e, rt):
                    raise
                fault = e
        self._recover(rt)
        if appending is not None or request.targets:
            raise DeviceLostError(self._loss_message(rt, "a tensor of this run")) from fault
        if self._fallback_process is None:
            return self._execute_here(input_feed, request)
        values = {n: v.value if isinstance(v, OrtValue) else v for n, v in input_feed.items()}
        kept = next((n for n, v in values.items() if isinstance(v, DeviceTensor)), None)
        if kept is not None:
            raise DeviceLostError(self._loss_message(rt, f"input '{kept}'")) from fault
        started = time.perf_counter()
        outputs = self._fallback_process.run(None, values)
        self._dispatcher.trace = trace = RunTrace(strategy="process", total_s=time.perf_counter() - started)
        return outputs, trace, RunRecord()

    def _is_lost_by(self, error: DeviceError, rt: Runtime) -> bool:
        """Whether a run failed because the context has ended, and may be repeated."""
        return self.may_recover and rt.check_lost(error)

    def _recover(self, rt: Runtime) -> None:
        """Load the model in a new context of the device of `rt`, or prepare another process if there is none."""
        with self._recovery_lock:
            if self._rt is not rt or self._fallback_process is not None:
                return
            self._lock.concurrent.clear()
            if rt.replace_lost() is None:
                self._dispatcher.forget_routes()
                self._fallback_process = SessionProcess(
                    self._arguments,
                    environment={"OPALITE_STRATEGY": "queue"},
                    may_recover=False,  # this session starts another process
                    error=DeviceLostError,
                )
            else:
                self._start(check_providers(self._arguments["providers"], self._arguments["provider_options"]))

    def check_not_lost(self, what: str, rt: Runtime) -> None:
        """Raise DeviceLostError if `what` was in the memory of a Runtime that is lost."""
        if rt.lost:
            raise DeviceLostError(self._loss_message(rt, what))

    def _loss_message(self, rt: Runtime, what: str) -> str:
        advice = "start the process again" if self._fallback_process is not None else "make it anew"
        return f"{what} was on {rt.info.title}, where a kernel's fault ended the context ({rt.lost}): {advice}"
