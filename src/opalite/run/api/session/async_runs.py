"""AsyncRuns: asynchronous runs of a session, by callback or in asyncio."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ....cl.device.fork_guard import check_fork
from ....errors import InputTypeError, MissingInputError
from ..options.run_options import RunOptions, check_run_options
from .session_runs import SessionRuns

Callback = Callable[[list[Any], Any, str], None]

_MAX_THREADS = 8  # more concurrent runs of one session only wait for each other


class AsyncRuns(SessionRuns):
    """A session with asynchronous runs. The first one starts the threads; `close` ends them."""

    _threads: ThreadPoolExecutor | None = None
    _threads_lock = threading.Lock()

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """Call `run` in another thread, then `callback(outputs, user_data, error)`; error is '' or a message.

        Raises MissingInputError and InputTypeError at once. The arrays must not change before the callback is called.
        Runs begin in the order of the calls. Exceptions of the callback go to `threading.excepthook`.
        """
        if not callable(callback):
            raise InputTypeError(f"run_async takes a function of (outputs, user_data, error), got {callback!r}")
        self._check_call(input_feed, run_options)

        def work() -> None:
            try:
                outputs = self.run(output_names, input_feed, run_options)
            except Exception as e:  # no caller in this thread could catch it
                _call(callback, [], user_data, str(e) or type(e).__name__)
                return
            _call(callback, outputs, user_data, "")

        self._thread_pool().submit(work)

    async def arun(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Call `run` in a thread of the session without blocking the event loop. Raises the errors of `run`.

        Cancelling the task before its run has begun removes the run. Cancelling it later ends the run between two
        segments of the model, as `RunOptions.terminate` does, unless the caller gave `run_options`. The arrays must not
        change before the run has ended, which may be shortly after the cancellation.
        """
        import asyncio  # slow to import; callers of arun have imported it

        self._check_call(input_feed, run_options)
        options = RunOptions() if run_options is None else run_options
        context = contextvars.copy_context()
        future = self._thread_pool().submit(context.run, self.run, output_names, input_feed, options)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if run_options is None:
                options.terminate = True
            raise

    def _check_call(self, feed: Mapping[str, Any], options: RunOptions | None) -> None:
        """Raise the errors that onnxruntime raises before an asynchronous run begins."""
        check_fork()
        if not isinstance(feed, Mapping):
            raise InputTypeError(f"inputs are a dict of arrays by name, got {type(feed).__name__}")
        check_run_options(options)
        missing = [a.name for a in self._model.inputs if a.name not in feed and not a.is_optional]
        if missing:
            raise MissingInputError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")

    def _thread_pool(self) -> ThreadPoolExecutor:
        with self._threads_lock:
            if self._threads is None:
                count = min(_MAX_THREADS, (os.cpu_count() or 1) + 2)
                self._threads = ThreadPoolExecutor(count, "opalite-run-async")
            return self._threads

    def _shutdown_threads(self) -> None:
        """End the threads after the runs accepted so far."""
        with self._threads_lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


def _call(callback: Callback, outputs: list[Any], user_data: Any, error: str) -> None:
    try:
        callback(outputs, user_data, error)
    except Exception:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
