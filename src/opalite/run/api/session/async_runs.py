"""AsyncRuns: a session's runs that the caller does not wait for, told by a callback or awaited in asyncio."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ....cl.device.fork_guard import check_fork
from ....errors import InputTypeError, MissingInputError
from ...model.model_interface import Model
from ..options.run_options import RunOptions, check_run_options

Callback = Callable[[list[Any], Any, str], None]

_MAX_THREADS = 8  # more runs of one session at once only wait for each other


class AsyncRuns:
    """Part of InferenceSession. Its threads are started when they are first needed, and end with the session."""

    _model: Model
    _threads: ThreadPoolExecutor | None = None
    _threads_lock = threading.Lock()

    @abstractmethod
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Outputs for inputs by name."""

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """`run` in another thread, which calls `callback(outputs, user_data, error)`: error is '' or a sentence.

        MissingInputError and InputTypeError are raised at once. The arrays must stay as they are until the callback.
        Runs begin in the order of the calls. What a callback raises goes to `threading.excepthook`.
        """
        if not callable(callback):
            raise InputTypeError(f"run_async takes a function of (outputs, user_data, error), got {callback!r}")
        self._check_call(input_feed, run_options)

        def work() -> None:
            try:
                outputs = self.run(output_names, input_feed, run_options)
            except Exception as e:  # told to the callback, in whose thread nobody could catch it
                _call(callback, [], user_data, str(e) or type(e).__name__)
                return
            _call(callback, outputs, user_data, "")

        self._thread_pool().submit(work)

    async def arun(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """`run` for asyncio: the loop goes on while a thread of the session computes. Raises what `run` raises.

        A task that is cancelled before its run has begun takes no time of the device; a run under way is called off
        as by `RunOptions.terminate` (between two parts of the model), unless `run_options` are the caller's own. The
        arrays must stay as they are until the run is over, which may be a moment after the task was cancelled.
        """
        import asyncio  # who awaits has it; others do not wait for it

        self._check_call(input_feed, run_options)
        told = RunOptions() if run_options is None else run_options
        context = contextvars.copy_context()
        future = self._thread_pool().submit(context.run, self.run, output_names, input_feed, told)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if run_options is None:
                told.terminate = True
            raise

    def _check_call(self, feed: Mapping[str, Any], options: RunOptions | None) -> None:
        """What is said against a call at once, as onnxruntime does; all else is what the run raises."""
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
        """Let them end once they have done what they were given."""
        with self._threads_lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)


def _call(callback: Callback, outputs: list[Any], user_data: Any, error: str) -> None:
    try:
        callback(outputs, user_data, error)
    except Exception:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
