"""Job: a request of an InferQueue, and the Future of its outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any


class Job(Future[list[Any]]):
    """A request. `result()` returns the outputs, in the model's order or of `output_names`; or raises the error.

    index: the number of earlier requests of the queue. userdata: the argument of `start_async`. inputs: the feeds, None
    after the job is done. queued_s, run_s: seconds in the queue, and in the worker.
    """

    def __init__(self, index: int, inputs: Mapping[str, Any], names: Sequence[str] | None, userdata: Any) -> None:
        super().__init__()
        self.index = index
        self.userdata = userdata
        self.inputs: Mapping[str, Any] | None = inputs
        self.output_names = names
        self.queued_s = self.run_s = 0.0
        self._since = time.perf_counter()

    def begin(self) -> bool:
        """Mark the job as running; returns False if it was cancelled."""
        now = time.perf_counter()
        self.queued_s, self._since = now - self._since, now
        return self.set_running_or_notify_cancel()

    def end(self, outputs: list[Any] | None, error: BaseException | None) -> None:
        """Store the outputs or the error, and wake the threads that wait for the job."""
        self.run_s = time.perf_counter() - self._since
        self.inputs = None
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(outputs or [])
