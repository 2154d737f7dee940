"""SpareWorker: a worker process that has done its imports, and waits for a model to open.

Imports are five sixths of the time that a lost worker's replacement takes: 0.63 of 0.75 s of a core for MobileNetV2.
"""

from __future__ import annotations

import asyncio
import contextlib

from .worker_process import WorkerProcess, is_stopped

_PAUSE_S = 2.0
"""From a start to that of the next spare process, so that it takes no time from the worker that starts."""


class SpareWorker:
    """Gives started processes. is_kept: whether one is kept ready, else each starts when it is wanted."""

    def __init__(self, is_kept: bool) -> None:
        self._is_kept = is_kept
        self._spare: WorkerProcess | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """The process in waiting, 0 if there is none."""
        return 0 if self._spare is None else self._spare.pid

    def take(self) -> WorkerProcess:
        """A process, to open a model with; the next spare one starts soon."""
        spare, self._spare = self._spare, None
        self._prepare_later()
        if spare is not None and not spare.ended.done() and not is_stopped(spare.pid):
            return spare
        if spare is not None:
            spare.kill()
        return WorkerProcess()

    async def close(self) -> None:
        self._is_kept = False
        if self._timer is not None:
            self._timer.cancel()
        if self._spare is not None:
            await self._spare.stop()

    def _prepare_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_kept:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._prepare)

    def _prepare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):  # no memory or descriptor now: the next worker starts without it
                self._spare = WorkerProcess()
