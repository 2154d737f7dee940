"""InferQueue: the queue, its bound, and the threads in which its workers are waited for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, Self

from ...errors import InputError, InputTypeError
from ...ir.device.device_info import DeviceInfo
from ..api.session.inference_session import InferenceSession
from .inference_request import Job
from .session_workers import Worker, open_workers

Callback = Callable[[Job, Any], None]
Inputs = Mapping[str, Any]


class InferQueue:
    """Requests that several workers take from one queue, in the manner of OpenVINO's AsyncInferQueue.

    with opalite.InferQueue("model.onnx") as queue:
        queue.set_callback(lambda job, userdata: print(userdata, job.result()[0].shape))
        for i, x in enumerate(arrays):
            queue.start_async({"x": x}, i)        # waits while `jobs` requests are under way
        queue.wait_all()

    model: a path, bytes, or sessions that are open, which `close` leaves open.
    devices: as `InferenceSession(device=...)`, or several, or "all"; None takes the default device.
    jobs: how many requests may be accepted and not done; None takes two for each worker.
    workers: how many requests each device computes at once; None takes one for a CPU, whose cores one run shares, and
        two for other devices; with `processes` one for each core of a CPU, and one for other devices.
    processes: each worker is a process of its own. Those of one CPU share its cores, to which they are pinned. Without,
        the workers of a device share one session and its weights. `opalite bench --throughput` says what is faster.
    options: those of InferenceSession (precision, memory, sess_options, ...).

    A request that fails ends neither the queue nor its workers. A process that ends is started anew, and only what it
    held fails, with DeviceError. Raises what InferenceSession raises, and InputError for counts below 1.
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
                raise InputError(f"{name} is a number from 1 on, or None, got {count!r}")
        self._workers = open_workers(model, devices, workers, processes, options)
        self.jobs = jobs if jobs is not None else 2 * len(self._workers)
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(len(self._workers), "opalite-queue")
        self._thread_local = threading.local()  # has a mark in the threads of `_threads`
        self._change = threading.Condition()
        self._accepted = 0
        self._unfinished: set[Job] = set()  # accepted and not done
        self._callbacks_running = 0  # done, but their callback is not
        self._callback: Callback | None = None
        self._failure: Exception | None = None  # the first that nobody was told of
        self._is_closed = False

    def __len__(self) -> int:
        """How many requests are computed at once."""
        return len(self._workers)

    @property
    def devices(self) -> list[DeviceInfo]:
        """The device of each worker."""
        return [worker.device for worker in self._workers]

    def set_callback(self, callback: Callback | None) -> None:
        """Have `callback(job, userdata)` called for every request that is done, failed and cancelled ones included.

        It is called in a worker's thread, which takes the next request when it returns. `job.result()` raises what
        the request raised. What the callback raises is raised by `wait_all`.
        """
        if callback is not None and not callable(callback):
            raise InputTypeError(f"set_callback takes a function of (job, userdata), got {callback!r}")
        self._callback = callback

    def start_async(self, inputs: Inputs, userdata: Any = None, output_names: Sequence[str] | None = None) -> Job:
        """Accept a request: arrays by input name, which must stay as they are until it is done.

        Waits while `jobs` requests are under way, except in a callback.
        """
        return self._start(inputs, userdata, output_names, is_bounded=not hasattr(self._thread_local, "mark"))

    def is_ready(self) -> bool:
        """Whether `start_async` would not wait."""
        with self._change:
            return len(self._unfinished) < self.jobs

    def wait_all(self) -> None:
        """Wait until every request accepted so far is done, and its callback.

        Raises what a callback raised, or without a callback what a request of `start_async` raised: the first of
        these since the last `wait_all`. The queue goes on.
        """
        with self._change:
            self._change.wait_for(lambda: not self._unfinished and not self._callbacks_running)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def map(self, inputs: Iterable[Inputs], output_names: Sequence[str] | None = None) -> Iterator[Job]:
        """Jobs for `inputs`, in their order, each when it is done; `userdata` is its place.

        No more than `jobs` are taken from `inputs` ahead of what was given out. `job.result()` raises what a request
        raised; the others go on.
        """
        ahead: deque[Job] = deque()
        with ExitStack() as stack:
            stack.callback(_cancel, ahead)
            for place, feeds in enumerate(inputs):
                if len(ahead) >= self.jobs:
                    yield _await(ahead.popleft())
                ahead.append(self._start(feeds, place, output_names, is_awaited=True))
            while ahead:
                yield _await(ahead.popleft())

    def as_completed(self, inputs: Iterable[Inputs], output_names: Sequence[str] | None = None) -> Iterator[Job]:
        """As `map`, but in the order in which they are done."""
        done: SimpleQueue[Any] = SimpleQueue()
        ahead: set[Job] = set()
        with ExitStack() as stack:
            stack.callback(_cancel, ahead)
            for place, feeds in enumerate(inputs):
                if len(ahead) >= self.jobs:
                    ahead.remove(job := done.get())
                    yield job
                ahead.add(job := self._start(feeds, place, output_names, is_awaited=True))
                job.add_done_callback(done.put)
            while ahead:
                ahead.remove(job := done.get())
                yield job

    async def arun(self, inputs: Inputs, output_names: Sequence[str] | None = None) -> list[Any]:
        """Outputs, for asyncio. No task blocks the loop, so `jobs` does not bound tasks; an asyncio.Semaphore does.

        A task that is cancelled takes its request back if no worker has begun it.
        """
        return await asyncio.wrap_future(self._start(inputs, None, output_names, is_bounded=False, is_awaited=True))

    def settle(self) -> None:
        """Wait for what the workers do in the background (`InferenceSession.settle`). For benchmarks."""
        for worker in self._workers:
            worker.settle()

    def close(self, *, cancel: bool = False) -> None:
        """Do what was accepted (cancel: take back what no worker has begun), then end sessions and processes."""
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
        """Accept a request. is_told: whoever waits for it is told what it raises."""
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
        """Have a worker compute a job, and tell of it. In one of as many threads as there are workers."""
        self._thread_local.mark = True
        outputs, error = None, None
        is_cancelled = not job.begin()
        if not is_cancelled:
            worker = self._free.get()
            try:
                outputs = worker.run(job.output_names, job.inputs or {})
            except Exception as e:  # the job's own
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
        except Exception as e:  # told to `wait_all`, since nobody could catch it here
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
