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
from typing import Any, Self, TypeVar

from ...errors import InputError, InputTypeError
from ...ir.device.device_info import DeviceInfo
from ..api.session.inference_session import InferenceSession
from .direct_choice import DirectChoice
from .session_workers import Worker, open_workers

Inputs = Mapping[str, Any]
T = TypeVar("T")


class Job(Future[list[Any]]):
    """A request. `result()` returns the outputs, in the model's order or of `output_names`; or raises the error.

    index: the number of earlier requests of the queue. userdata: the argument of `start_async`. inputs: the feeds, None
    after the job is done. queued_s, run_s: seconds in the queue, and in the worker.
    """

    def __init__(
        self, index: int, inputs: Inputs, names: Sequence[str] | None, userdata: Any, is_awaited: bool
    ) -> None:
        """is_awaited: a caller waits for the job and gets its error."""
        super().__init__()
        self.index = index
        self.userdata = userdata
        self.is_awaited = is_awaited
        self.inputs: Mapping[str, Any] | None = inputs
        self.output_names = names
        self.queued_s = self.run_s = 0.0
        self.accepted_s = self._since = time.perf_counter()

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
        self._free = self._workers[::-1]
        self._threads = ThreadPoolExecutor(len(self._workers), "opalite-queue")
        self._servers = 0  # calls of `_serve` that are under way, one in each thread
        self._thread_local = threading.local()  # is_computing: the thread is in a run or a callback
        self._lock = threading.Lock()  # of the fields below
        self._change = threading.Condition(self._lock)  # notified if any thread waits
        self._waiting = 0
        self._mean_s = 1.0  # of a run; the last ones count most
        shares_session = not processes and len({worker.device.id for worker in self._workers}) == 1
        self._direct = DirectChoice() if shares_session else None
        self._accepted = 0
        self._pending: deque[Job] = deque()  # not begun
        self._unfinished: set[Job] = set()
        self._finishing = 0  # jobs whose results are being stored, or whose callbacks run
        self._callback: Callback | None = None
        self._failure: BaseException | None = None  # the first error to be raised by `wait_all`
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

        The callback runs in the thread that computed the request, which then takes the next one. `job.result()` raises
        the error of the request. `wait_all` raises the errors of callbacks.
        """
        if callback is not None and not callable(callback):
            raise InputTypeError(f"set_callback takes a function of (job, userdata), got {callback!r}")
        self._callback = callback

    def start_async(
        self,
        inputs: Inputs,
        userdata: Any = None,
        output_names: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Job:
        """Accept a request with arrays by input name, which must not change until the request is done.

        Waits while `jobs` requests are unfinished, except in a callback. Requests that take less than two milliseconds
        are computed by the calling thread, if that measures faster. timeout: raise TimeoutError if no request has
        finished in so many seconds; this one is then not accepted.
        """
        return self._start(inputs, userdata, output_names, is_bounded=not self._is_computing, timeout=timeout)

    def is_ready(self) -> bool:
        """Whether `start_async` would return without waiting."""
        with self._lock:
            return len(self._unfinished) < self.jobs

    def wait_all(self, timeout: float | None = None) -> None:
        """Wait until all accepted requests and their callbacks are done.

        Raises the first error of a callback since the last `wait_all`, or without a callback the first error of a
        request of `start_async`; TimeoutError if requests are unfinished after so many seconds. The queue can be used
        again.
        """

        def take_failure() -> BaseException | None:
            failure, self._failure = self._failure, None
            return failure

        failure = self._wait_for(lambda: not self._unfinished and not self._finishing, take_failure, timeout)
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
                    yield self._await(ahead.popleft())
                ahead.append(self._start(feeds, i, output_names, is_awaited=True))
            while ahead:
                yield self._await(ahead.popleft())

    def as_completed(self, inputs: Iterable[Inputs], output_names: Sequence[str] | None = None) -> Iterator[Job]:
        """Yield finished jobs like `map`, in the order in which they finish."""
        done: deque[Any] = deque()
        ahead: set[Job] = set()

        def first() -> Job:
            job: Job = self._wait_for(lambda: bool(done), done.popleft)
            ahead.remove(job)
            return job

        with ExitStack() as stack:
            stack.callback(_cancel, ahead)
            for i, feeds in enumerate(inputs):
                if len(ahead) >= self.jobs:
                    yield first()
                ahead.add(job := self._start(feeds, i, output_names, is_awaited=True))
                job.add_done_callback(done.append)
            while ahead:
                yield first()

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
        with self._lock:
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
        timeout: float | None = None,
    ) -> Job:
        """Accept a request. is_awaited: the caller waits for the job and gets its error."""
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise InputTypeError(f"inputs are a dict of arrays by name, got {type(inputs).__name__}")

        def accept() -> tuple[Job, Worker | None]:
            if self._is_closed:
                raise InputError("this InferQueue is closed; make another")
            job = Job(self._accepted, inputs, names, userdata, is_awaited)
            self._accepted += 1
            self._unfinished.add(job)
            is_direct = direct is not None and direct.decide(job.accepted_s, self._mean_s)
            if is_direct and self._free and not self._pending:
                return job, self._free.pop()
            self._pending.append(job)
            self._start_server()
            return job, None

        direct = self._direct if is_bounded and not self._is_computing else None
        is_over = self._has_room if is_bounded else _always
        job, worker = self._wait_for(is_over, accept, timeout)
        if worker is not None:
            self._compute(job, worker)
        return job

    def _has_room(self) -> bool:
        return len(self._unfinished) < self.jobs or self._is_closed

    @property
    def _is_computing(self) -> bool:
        return getattr(self._thread_local, "is_computing", False)

    def _await(self, job: Job) -> Job:
        return job if job.done() else self._wait_for(job.done, lambda: job)

    def _wait_for(self, is_over: Callable[[], bool], then: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until `is_over`, then call `then` with the lock held and return its result."""
        with self._lock:
            if not is_over():
                self._waiting += 1
                try:
                    if not self._change.wait_for(is_over, timeout):
                        raise TimeoutError(f"{len(self._unfinished)} requests are unfinished after {timeout:g} seconds")
                finally:
                    self._waiting -= 1
            return then()

    def _start_server(self) -> None:
        """Have a thread compute pending jobs, unless there is one for each worker. The caller holds the lock."""
        if self._pending and self._free and self._servers < len(self._workers):
            self._servers += 1
            self._threads.submit(self._serve)

    def _serve(self) -> None:
        """Compute jobs while there are any."""
        try:
            while (job := self._take_or_leave()) is not None:
                self._compute(*job)
        except BaseException:  # an exit of the thread
            with self._lock:
                self._servers -= 1
                self._start_server()
            raise

    def _take_or_leave(self) -> tuple[Job, Worker] | None:
        with self._lock:
            if (job := self._take()) is None:
                self._servers -= 1
            return job

    def _take(self) -> tuple[Job, Worker] | None:
        """The next job and a free worker, if there are both. The caller holds the lock."""
        return (self._pending.popleft(), self._free.pop()) if self._pending and self._free else None

    def _compute(self, job: Job, worker: Worker) -> None:
        """Compute a job, then call the callback."""
        self._thread_local.is_computing = True
        failure: BaseException | None = None
        try:
            outputs, error = None, None
            if not (is_cancelled := not job.begin()):
                try:
                    outputs = worker.run(job.output_names, job.inputs or {})
                except BaseException as e:  # stored in the job
                    error = e
            callback = self._callback
            with self._lock:
                self._unfinished.remove(job)
                self._finishing += 1
                self._free.append(worker)
                self._start_server()
                if callback is not None and self._waiting:
                    self._change.notify_all()
            if not is_cancelled:
                job.end(outputs, error)
            if callback is None and not job.is_awaited:
                failure = error
            if error is not None and not isinstance(error, Exception):
                raise error  # an interrupt of the thread
            if callback is not None:
                callback(job, job.userdata)
        except Exception as e:  # of the callback; raised by `wait_all`: no caller could catch it here
            failure = e
        finally:
            self._thread_local.is_computing = False
            with self._lock:
                self._finishing -= 1
                # A run that other load holds up for long counts for a few.
                self._mean_s += 0.2 * (min(job.run_s, 4 * self._mean_s) - self._mean_s)
                self._failure = self._failure or failure
                if self._waiting:
                    self._change.notify_all()


def _always() -> bool:
    return True


def _cancel(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.cancel()
