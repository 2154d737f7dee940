"""InferQueue: a bounded queue of requests that several workers serve."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, Self

from ...errors import InputError, InputTypeError
from ...ir.device.device_info import DeviceInfo
from ..api.session.inference_session import InferenceSession
from .session_workers import Worker, open_workers

Inputs = Mapping[str, Any]


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


Callback = Callable[[Job, Any], None]


class InferQueue:
    """A bounded queue of requests, computed by several workers, similar to OpenVINO's AsyncInferQueue.

    with opalite.InferQueue("model.onnx") as queue:
        queue.set_callback(lambda job, userdata: print(userdata, job.result()[0].shape))
        for i, x in enumerate(arrays):
            queue.start_async({"x": x}, i)        # waits while `jobs` requests are unfinished
        queue.wait_all()

    model: a path, bytes, or open sessions, which `close` leaves open.
    devices: one or several requests as of `InferenceSession(device=...)`; "all" takes all devices of the default
        device's kind, such as all GPUs; None takes the default device.
    jobs: the maximum number of unfinished requests; None takes two for each worker.
    workers: the number of concurrent requests on each device; None takes one for a CPU, because a run uses all cores,
        and two for other devices; with `processes`, one for each core of a CPU, and one for other devices.
    processes: run each worker in a process of its own; processes of a CPU are pinned to separate cores. Otherwise the
        workers of a device share one session and its weights. `opalite bench --throughput` measures both.
    options: arguments of InferenceSession (precision, memory, sess_options, ...).

    After a failed request, the queue and its workers continue. If a process ends, only its current request fails, with
    DeviceError, and the next request starts another process. Raises the errors of InferenceSession, and InputError for
    counts below 1.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | InferenceSession | Sequence[InferenceSession],
        *,
        devices: str | Sequence[str] | None = None,
        jobs: int | None = None,
        workers: int | None = None,
        processes: bool = False,
        **options: Any,
    ) -> None:
        for name, count in (("jobs", jobs), ("workers", workers)):
            if count is not None and (not isinstance(count, int) or count < 1):
                raise InputError(f"{name} is a number of at least 1, or None, got {count!r}")
        self._workers = open_workers(model, devices, workers, processes, options)
        self.jobs = jobs if jobs is not None else 2 * len(self._workers)
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(len(self._workers), "opalite-queue")
        self._thread_local = threading.local()  # has the attribute `is_worker` in the threads of `_threads`
        self._change = threading.Condition()
        self._accepted = 0
        self._unfinished: set[Job] = set()
        self._callbacks_running = 0
        self._callback: Callback | None = None
        self._failure: Exception | None = None  # the first error to be raised by `wait_all`
        self._is_closed = False

    def __len__(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def devices(self) -> list[DeviceInfo]:
        """The device of each worker."""
        return [worker.device for worker in self._workers]

    def set_callback(self, callback: Callback | None) -> None:
        """Set a function `callback(job, userdata)` to call for every finished, failed or cancelled request.

        The callback runs in a worker's thread, which then takes the next request. `job.result()` raises the error of
        the request. `wait_all` raises the errors of callbacks.
        """
        if callback is not None and not callable(callback):
            raise InputTypeError(f"set_callback takes a function of (job, userdata), got {callback!r}")
        self._callback = callback

    def start_async(self, inputs: Inputs, userdata: Any = None, output_names: Sequence[str] | None = None) -> Job:
        """Accept a request with arrays by input name, which must not change until the request is done.

        Waits while `jobs` requests are unfinished, except in a callback.
        """
        return self._start(inputs, userdata, output_names, is_bounded=not hasattr(self._thread_local, "is_worker"))

    def is_ready(self) -> bool:
        """Whether `start_async` would return without waiting."""
        with self._change:
            return len(self._unfinished) < self.jobs

    def wait_all(self) -> None:
        """Wait until all accepted requests and their callbacks are done.

        Raises the first error of a callback since the last `wait_all`, or without a callback the first error of a
        request of `start_async`. The queue can be used again.
        """
        with self._change:
            self._change.wait_for(lambda: not self._unfinished and not self._callbacks_running)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def map(self, inputs: Iterable[Inputs], output_names: Sequence[str] | None = None) -> Iterator[Job]:
        """Yield a finished job for each of `inputs`, in their order; `userdata` is the index.

        Reads at most `jobs` inputs ahead of the jobs yielded. `job.result()` raises the error of a request, which does
        not affect other requests.
        """
        ahead: deque[Job] = deque()
        with ExitStack() as stack:
            stack.callback(_cancel, ahead)
            for i, feeds in enumerate(inputs):
                if len(ahead) >= self.jobs:
                    yield _await(ahead.popleft())
                ahead.append(self._start(feeds, i, output_names, is_awaited=True))
            while ahead:
                yield _await(ahead.popleft())

    def as_completed(self, inputs: Iterable[Inputs], output_names: Sequence[str] | None = None) -> Iterator[Job]:
        """Yield finished jobs like `map`, in the order in which they finish."""
        done: SimpleQueue[Any] = SimpleQueue()
        ahead: set[Job] = set()
        with ExitStack() as stack:
            stack.callback(_cancel, ahead)
            for i, feeds in enumerate(inputs):
                if len(ahead) >= self.jobs:
                    ahead.remove(job := done.get())
                    yield job
                ahead.add(job := self._start(feeds, i, output_names, is_awaited=True))
                job.add_done_callback(done.put)
            while ahead:
                ahead.remove(job := done.get())
                yield job

    async def arun(self, inputs: Inputs, output_names: Sequence[str] | None = None) -> list[Any]:
        """Compute a request in asyncio without blocking the loop; returns the outputs.

        `jobs` does not limit such requests; use an asyncio.Semaphore. Cancelling the task removes a request that has
        not begun.
        """
        return await asyncio.wrap_future(self._start(inputs, None, output_names, is_bounded=False, is_awaited=True))

    def settle(self) -> None:
        """Call `InferenceSession.settle` of all workers. For benchmarks."""
        for worker in self._workers:
            worker.settle()

    def close(self, *, cancel: bool = False) -> None:
        """Finish accepted requests, then end sessions and processes. cancel: drop requests that have not begun."""
        with self._change:
            if self._is_closed:
                return
            self._is_closed = True
            left = list(self._unfinished) if cancel else []
        _cancel(left)
        self._threads.shutdown()
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.close(cancel=kind is not None)

    def _start(
        self,
        inputs: Inputs,
        userdata: Any,
        names: Sequence[str] | None,
        *,
        is_bounded: bool = True,
        is_awaited: bool = False,
    ) -> Job:
        """Accept a request. is_awaited: the caller waits for the job and gets its error."""
        if not isinstance(inputs, Mapping):
            raise InputTypeError(f"inputs are a dict of arrays by name, got {type(inputs).__name__}")
        with self._change:
            if is_bounded:
                self._change.wait_for(lambda: len(self._unfinished) < self.jobs or self._is_closed)
            if self._is_closed:
                raise InputError("this InferQueue is closed; make another")
            job = Job(self._accepted, inputs, names, userdata)
            self._accepted += 1
            self._unfinished.add(job)
            self._threads.submit(self._work, job, is_awaited)
        return job

    def _work(self, job: Job, is_awaited: bool) -> None:
        """Compute a job on a free worker, then call the callback. Runs in one of `len(self)` threads."""
        self._thread_local.is_worker = True
        outputs, error = None, None
        is_cancelled = not job.begin()
        if not is_cancelled:
            worker = self._free.get()
            try:
                outputs = worker.run(job.output_names, job.inputs or {})
            except Exception as e:  # stored in the job
                error = e
            self._free.put(worker)
        with self._change:
            self._unfinished.remove(job)
            self._callbacks_running += 1
            self._change.notify_all()
        if not is_cancelled:
            job.end(outputs, error)
        callback = self._callback
        failure = error if callback is None and not is_awaited else None
        try:
            if callback is not None:
                callback(job, job.userdata)
        except Exception as e:  # raised by `wait_all`: no caller could catch it here
            failure = e
        with self._change:
            self._callbacks_running -= 1
            self._failure = self._failure or failure
            self._change.notify_all()


def _await(job: Job) -> Job:
    job.exception()
    return job


def _cancel(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.cancel()
