"""SessionRuns: runs of a session on arrays, OrtValues and bound memory; asynchronous ones by callback or in asyncio."""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ....cl.device.fork_guard import check_fork
from ....cl.memory.device_tensor import DeviceTensor
from ....errors import BindingError, DeviceError, InputError, InputTypeError, MissingInputError, OptionError
from ..caches.bound_kv_cache import run_with_binding
from ..options.run_options import RunOptions, check_not_terminated, check_run_options, report_run
from ..values.host_memory_errors import out_of_memory
from ..values.io_binding import IOBinding
from ..values.ort_value import OrtValue
from .context_recovery import Recovery
from .inner_values import InnerValues

if TYPE_CHECKING:
    from .inference_session import InferenceSession

Callback = Callable[[list[Any], Any, str], None]

_MAX_THREADS = 8  # more concurrent runs of one session only wait for each other


class SessionRuns(Recovery):
    """A session that runs on the caller's values. The first asynchronous run starts threads; `close` ends them."""

    _threads: ThreadPoolExecutor | None = None
    _inner_values: InnerValues | None = None
    _threads_lock = threading.Lock()

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Run the model on arrays by input name; returns the outputs `output_names`, all if None or empty.

        `output_names` may have any other values of the model's graph: a program of its own computes them, once for each
        choice of names (docs/running.md). Inputs may be OrtValues; those on the session's device are not copied. Raises
        InputError for inputs that the model does not accept, and for names that are no values.
        """
        if output_names is not None and self._asks_for_inner(output_names):
            return self._inner_session(output_names).run(output_names, input_feed, run_options)
        picked = self._all_outputs if output_names is None else self._pick_outputs(output_names)
        options = None if run_options is None else check_run_options(run_options)
        check = None if options is None else partial(check_not_terminated, options)
        if options is not None:
            check_not_terminated(options)
        found, rt, caches, short = None, self._rt, self._array_caches, self._dispatcher.short
        try:
            if short is not None and options is None and caches is None and not self._log.is_enabled(logging.DEBUG):
                made = short.run(input_feed)
                if made is not None:
                    return made if picked is self._all_outputs else [made[i] for i in picked]
            if caches is not None:
                found = caches.run(input_feed, picked, self._request(options))
            found = found or self._dispatcher.run_cached(input_feed, None, check)
        except DeviceError as e:
            if not self._is_lost_by(e, rt):
                raise
        except MemoryError as e:
            raise out_of_memory(e, "running the model") from e
        outputs, trace = found or self._execute(input_feed, self._request(options))[:2]
        if caches is not None:
            caches.record(input_feed, outputs)
        if options is not None:
            check_not_terminated(options)
        if options is not None or self._log.is_enabled(logging.DEBUG):
            report_run(options, self._log, trace.total_s)
        return [v.numpy() if type(v := outputs[i]) is DeviceTensor else v for i in picked]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on the bound memory, and wait. Raises BindingError for unfitting memory, and if no output is bound."""
        if not isinstance(iobinding, IOBinding):
            raise InputTypeError(f"run_with_iobinding takes an IOBinding, got {type(iobinding).__name__}")
        if iobinding.session is not self:
            raise OptionError("IOBinding must be used with the session that created it: session.io_binding()")
        options = check_run_options(run_options)
        check_not_terminated(options)
        self.check_not_lost("the bound memory", iobinding.rt)
        outputs = list(iobinding.outputs.values())
        if not outputs:
            raise BindingError(
                f"no output is bound; bind_output('{self._model.outputs[0].name}') leaves it to the host"
            )
        check_fork()
        targets = {o.name: o.target for o in outputs if o.on_device}
        try:
            found = run_with_binding(self, iobinding, self._request(options, targets))
        except InputError as e:
            raise BindingError(e.message) from e
        for output, i in zip(outputs, self._pick_outputs([o.name for o in outputs]), strict=True):
            output.store(found[i])

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on OrtValues; the outputs are OrtValues in host memory."""
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, OrtValue):
                raise InputTypeError(f"input '{name}' is given as an OrtValue here, got {type(value).__name__}")
        picked = self._pick_outputs(output_names)
        types = [self._model.outputs[i].type for i in picked]
        values = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(v, t) for v, t in zip(values, types, strict=True)]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: Any,
        fetch_devices: Any = None,
    ) -> None:
        """Call `run_with_ort_values` by lists of names and values; appends the outputs to `fetches`."""
        if len(feed_names) != len(feeds):
            raise InputTypeError(f"{len(feed_names)} names of inputs, but {len(feeds)} values")
        for value in self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options):
            fetches.push_back(value)

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

    def _inner_session(self, names: Sequence[str]) -> InferenceSession:
        """A session whose outputs are the values `names`."""
        with self._threads_lock:
            if self._inner_values is None:
                self._inner_values = InnerValues(self._arguments, cast("type[InferenceSession]", type(self)))
        return self._inner_values.session(names, None if self._auto is None else self._auto.policy)

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
