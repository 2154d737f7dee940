"""Job: one request of an InferQueue, a Future of its outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any


class Job(Future[list[Any]]):
    """`result()` are the outputs in the model's order, or of the names asked for; `exception()` what went wrong.

    index: how many requests the queue had taken before. userdata: what `start_async` was given. inputs: the feeds,
    None once the job is done. queued_s, run_s: seconds until a worker took it, and from then until it was done.
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
        """Note that a worker has taken it; False if it was cancelled before."""
        now = time.perf_counter()
        self.queued_s, self._since = now - self._since, now
        return self.set_running_or_notify_cancel()

    def end(self, outputs: list[Any] | None, error: BaseException | None) -> None:
        """Note outputs, or what went wrong, and wake who waits for it."""
        self.run_s = time.perf_counter() - self._since
        self.inputs = None
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(outputs or [])
