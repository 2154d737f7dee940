"""ServedVersion: one version of a model, with its queue and its worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..wire.infer_messages import (
    Duration,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Statistics,
    Tensor,
    TensorMetadata,
)
from ..wire.serve_errors import Internal, Invalid, NotReady, ServeError, TimedOut, WorkerLost
from .model_config import ModelConfig, QueuePolicy, ServerSettings
from .model_repository import ModelSource
from .request_queue import OnPiece, RequestQueue, Ticket, timeout_of
from .server_observer import RequestTrace, ServerObservers
from .validate_requests import RequestValidator
from .worker_pool import Device, Placement, WorkerPool, most_instances, placements_on
from .worker_process import WorkerBatch, WorkerProcess

_DEFAULT_MAX_BATCH = 4
"""Default rows of a batch, as in Triton."""
_PARTS = ("queue_s", "input_s", "infer_s", "output_s", "total_s")


class ServedVersion:
    """Accepts requests between `start` and `drain`. All calls are made on the event loop's thread."""

    def __init__(
        self,
        source: ModelSource,
        config: ModelConfig,
        settings: ServerSettings,
        devices: tuple[Device, ...],
        observers: ServerObservers,
        new_process: Callable[[], WorkerProcess],
    ) -> None:
        """devices: of the workers. config: as given; the workers' descriptions complete `self.config`."""
        self.source, self.config = source, config
        self.name, self.version = source.name, str(source.version)
        self.is_text = source.kind == "text"
        self._takes_options = source.kind in ("text", "embedding")
        self.statistics = Statistics(self.name, self.version)
        self.inputs: tuple[TensorMetadata, ...] = ()
        self.outputs: tuple[TensorMetadata, ...] = ()
        self._settings, self._observers = settings, observers
        placements = placements_on(devices, config.instances or settings.instances)
        if len(placements) > (most := most_instances() * len(devices)):
            raise Invalid(
                f"model '{self.name}' asks for {len(placements)} workers, and this machine takes {most}, by devices, "
                "cores and memory: lower `count` of instance_group or --instances"
            )
        self._run_timeout_s = settings.run_timeout_s if config.run_timeout_s is None else config.run_timeout_s
        self.pool = WorkerPool(self, placements, settings.start_timeout_s, observers, new_process)
        self._queue: RequestQueue
        self._validator: RequestValidator
        self._running = 0  # requests in workers
        self._max_batch = _DEFAULT_MAX_BATCH if settings.max_batch_size is None else settings.max_batch_size
        # Whether rows are independent, and whether a batch is faster than its rows.
        self._batchable = self._batching_pays = False
        self._concurrency: dict[Placement, int] = {}  # concurrent runs of a worker, if measured
        self._has_queue = False
        self._idle = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    @property
    def is_ready(self) -> bool:
        """Whether a worker is ready and alive. Requests are also accepted while a lost one is being replaced."""
        return not self._stopping and self.pool.is_ready

    def metadata(self, versions: tuple[str, ...]) -> ModelMetadata:
        """Inputs and outputs. versions: all that are served."""
        platform = f"{self.source.kind}_opalite"
        return ModelMetadata(self.name, versions, platform, self.inputs, self.outputs)

    async def start(self) -> None:
        """Start all workers; return when they are ready. The first ServeError if all fail."""
        await self.pool.start()
        self._configure_queue()

    def admit(self) -> None:
        """Admit a request before its body is read. Busy, NotReady."""
        try:
            self._check_ready()
            self._queue.admit(time.monotonic_ns())
        except ServeError as e:
            self._observers.rejected(self.name, self.version, e.kind)
            raise

    def enqueue(self, request: InferRequest, on_piece: OnPiece | None = None) -> Ticket:
        """Validate and queue a request. Invalid, TooLarge, Busy, NotReady."""
        self._queue.arrive()
        try:
            size, key, nbytes = self._validator.check(request)
            level = self._queue.level_of(request.priority)
            policy = self._queue.policy_of(level)
            timeout_s = timeout_of(request, policy)
            self._check_ready()
            self._queue.check_capacity(level)
            request.hold(nbytes)  # of the copy in the worker's memory
        except ServeError as e:
            self._observers.rejected(self.name, self.version, e.kind)
            raise
        loop = asyncio.get_running_loop()
        key = key if request.generation is None else None  # which are options of its own
        ticket = Ticket(request, loop.create_future(), size, key, level, time.monotonic_ns(), nbytes)
        ticket.started_ns, ticket.on_piece, ticket.timeout_s = time.time_ns(), on_piece, timeout_s
        if ticket.timeout_s:
            ticket.timer = loop.call_later(ticket.timeout_s, self._expire, ticket, policy)
        self._queue.put(ticket)
        self._observers.accepted(request, self.version)
        self._dispatch()
        self._observers.queued(self.name, self.version, self._queue.count)
        return ticket

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run a request. Raises a ServeError. Cancelling the task abandons the request."""
        ticket = self.enqueue(request)
        try:
            return await ticket.future
        except asyncio.CancelledError:
            self._abandon(ticket)
            raise

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse]:
        """The pieces of a text as they are generated, and a last response with the reason of its end."""
        pieces: asyncio.Queue[tuple[str, tuple[Any, ...]] | None] = asyncio.Queue()
        ticket = self.enqueue(request, lambda text, logprobs: pieces.put_nowait((text, logprobs)))
        ticket.future.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                text, logprobs = piece
                yield InferResponse(request.model, self.version, request.id, (_text(text, request),), {}, logprobs)
            last = await ticket.future
            parameters = {**last.parameters, "triton_final_response": True}
            yield InferResponse(request.model, self.version, request.id, (_text("", request),), parameters)
        finally:
            self._abandon(ticket)

    async def drain(self, grace_s: float | None) -> None:
        """Refuse new requests and finish accepted ones, within `grace_s` if given."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._has_queue and (self._running or self._queue.count):
                    self._idle.clear()
                    await self._idle.wait()

    async def stop(self) -> None:
        """End the workers; remaining requests fail with NotReady."""
        self._stopping = True
        self._fail_waiting(NotReady(f"model '{self.name}' was unloaded before the request was run"))
        await self.pool.stop_all()
        if self._timer is not None:
            self._timer.cancel()

    def _check_ready(self) -> None:
        if self._stopping or not self.pool.is_available:
            raise NotReady(f"model '{self.name}' {'is being unloaded' if self._stopping else 'has no worker'}")

    def worker_opened(self, worker: WorkerProcess, placement: Placement, description: Mapping[str, Any]) -> None:
        """Accept a worker that has opened the model; the first description defines inputs and outputs.

        A ServeError ends the worker.
        """
        if not self.outputs:
            self._adopt_description(description)
        self._batchable |= description["batchable"]
        self._batching_pays |= not description["on_host"]
        self._concurrency[placement] = description["concurrency"]
        name = description["device"]
        worker.on_done = lambda job, failure: self._done(worker, name, job, failure)
        worker.on_overdue = lambda job: self._run_overdue(job, name)
        worker.run_timeout_s = self._run_timeout_s
        worker.on_stats = lambda stats: self._observers.session(self.name, self.version, name, worker.pid, stats)
        if stats := description.get("stats"):
            worker.on_stats(stats)
        if self._has_queue:
            self._dispatch()

    def no_worker_left(self, failure: ServeError) -> None:
        """Fail all queued requests, after too many failed starts."""
        self._fail_waiting(NotReady(f"model '{self.name}' has no worker: {failure}"))

    def open_message(self, placement: Placement, is_replacement: bool) -> dict[str, Any]:
        """The message that opens the model. is_replacement: whether the worker replaces a lost one."""
        config, settings = self.config, self._settings
        asked = {
            "device": placement.device,
            "precision": config.precision or settings.precision,
            "memory": config.memory or settings.memory,
            "tune": config.tune or settings.tune,
        }
        most = self._max_batch if config.max_batch_size is None else config.max_batch_size
        batching = config.dynamic_batching
        preferred = settings.preferred_batch_size if batching is None else batching.preferred_batch_size
        sizes = config.warm_sizes or sorted({1, *(s for s in preferred if s <= most), *range(2, min(most, 4) + 1)})
        return {
            "path": str(self.source.path),
            "kind": self.source.kind,
            "options": {n: v for n, v in asked.items() if v is not None},
            "factory": settings.session_factory,
            "import_path": sys.path,
            "warm_sizes": [1] if is_replacement else list(sizes),
            "batchable": config.max_batch_size is None and self._max_batch > 1,
            "batches": bool(config.max_batch_size or config.warm_sizes or settings.max_batch_size),
            "core_share": placement.core_share,
            "is_replacement": is_replacement,
            "concurrency": self._concurrency.get(placement, 0),
            "max_output_bytes": settings.max_output_bytes,
        }

    def _adopt_description(self, description: Mapping[str, Any]) -> None:
        """Take inputs and outputs from the first worker's description. Invalid if they contradict the configuration."""
        self.inputs = tuple(TensorMetadata(n, d, tuple(s)) for n, d, s in description["inputs"])
        self.outputs = tuple(TensorMetadata(n, d, tuple(s)) for n, d, s in description["outputs"])
        config = self.config
        most = config.max_batch_size
        if most:
            fixed = next((t for t in (*self.inputs, *self.outputs) if t.shape[:1] != (-1,)), None)
            if fixed is not None:
                raise Invalid(
                    f"model '{self.name}' has max_batch_size {most}, but the shape of '{fixed.name}' is "
                    f"{list(fixed.shape)}: the first dimension of all inputs and outputs must be open"
                )
        if config.inputs or config.outputs:
            from .triton_config import check_tensors  # needs protobuf

            check_tensors(config, self.metadata((self.version,)))

    def _configure_queue(self) -> None:
        """Make the validator and the queue, by the workers' descriptions."""
        settings, config = self._settings, self.config
        most, max_rows = config.max_batch_size, config.max_batch_size or 0
        if most is None:
            most = self._max_batch if self._batchable else 0
            if most and (self._batching_pays or settings.max_batch_size):
                config = replace(config, dynamic_batching=config.dynamic_batching or settings.batching(most))
        self.config = replace(config, max_batch_size=most)
        self._validator = RequestValidator(self.inputs, self.outputs, settings, bool(most), max_rows)
        self._queue = RequestQueue(config.dynamic_batching, most, settings.max_queue_size)
        self._has_queue = True

    def _dispatch(self) -> None:
        """Give queued requests to workers with capacity."""
        while self._queue.count:
            worker = self.pool.find()
            if worker is None:
                return
            tickets, due = self._queue.take(time.monotonic_ns())
            if not tickets:
                if due and self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(due * 1e-9, self._wake)
                return
            self._submit(worker, tickets)

    def _wake(self) -> None:
        self._timer = None
        self._dispatch()

    def _submit(self, worker: WorkerProcess, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            ticket.stop_timer()
        try:
            worker.submit(tickets, tickets[0].request.text_options if self._takes_options else {})
        except (OSError, MemoryError) as e:
            for ticket in tickets:
                self._fail(ticket, Internal(f"there is no shared memory for the request: {e}"))
            return
        self._running += len(tickets)
        for ticket in tickets:
            if asked := ticket.request.timeout_s:
                left = max(asked - (time.monotonic_ns() - ticket.arrived) * 1e-9, 0.0)
                ticket.timer = asyncio.get_running_loop().call_later(left, self._run_expired, ticket, worker)

    def _run_expired(self, ticket: Ticket, worker: WorkerProcess) -> None:
        """Fail a request whose own time-out ends while it runs."""
        self._fail(ticket, TimedOut(f"the request took longer than its timeout, {ticket.request.timeout_s:.3f} s"))
        worker.abandon(ticket)

    def _run_overdue(self, job: WorkerBatch, device: str) -> None:
        failure = TimedOut(f"a run of model '{self.name}' took longer than {self._run_timeout_s:g} s and was cancelled")
        for ticket in job.tickets:
            self._fail(ticket, failure, device)

    def _done(self, worker: WorkerProcess, device: str, job: WorkerBatch, failure: ServeError | None) -> None:
        tickets, times = job.tickets, job.times
        self._running -= len(tickets)
        size = sum(t.size for t in tickets)
        if isinstance(failure, WorkerLost):
            self.pool.ready.pop(worker, None)
        elif failure is None:
            self.statistics.add_batch(size, times.parts)
            busy = (times.input + times.infer + times.output) * 1e-9
            self._observers.batch(self.name, self.version, device, size, len(tickets), busy)
        is_lost = isinstance(failure, WorkerLost)
        if is_lost and not job.begun and not self._stopping:
            for ticket in reversed(tickets):
                if not ticket.future.done():
                    self._queue.put(ticket, first=True)
        elif failure is not None and len(tickets) > 1 and not is_lost:
            # The faulty request is unknown: each runs alone.
            for ticket in reversed(tickets):
                ticket.key = None
                if not ticket.future.done():
                    self._queue.put(ticket, first=True)
        elif failure is not None:
            for ticket in tickets:
                self._fail(ticket, failure, device)
        else:
            responses = job.responses
            if self.is_text:
                text = _text("".join(job.text), tickets[0].request)
                responses = [replace(responses[0], outputs=(text,), logprobs=tuple(job.logprobs))]
            for ticket, response in zip(tickets, responses, strict=True):
                self._succeed(ticket, response, device, job, size)
        if self._queue.count:
            self._dispatch()
        self._observers.queued(self.name, self.version, self._queue.count)
        if not self._running and not self._queue.count:
            self._idle.set()

    def _succeed(self, ticket: Ticket, response: InferResponse, device: str, job: WorkerBatch, size: int) -> None:
        if ticket.future.done():
            return
        times, total = job.times, time.monotonic_ns() - ticket.arrived
        queue = times.taken - ticket.arrived + max(times.started - times.written, 0)
        self.statistics.add_success(total, queue, times.parts)
        ticket.future.set_result(response)
        nbytes = sum(t.array.nbytes for t in response.outputs)
        self._finished(ticket, (queue, *times.parts, total), device, batch=size, bytes_out=nbytes)

    def _fail(self, ticket: Ticket, failure: ServeError, device: str = "") -> None:
        if ticket.future.done():
            return
        ticket.future.set_exception(failure)
        self._finished_without_answer(ticket, self.statistics.fail, device, failure.kind, str(failure))

    def _fail_waiting(self, failure: ServeError) -> None:
        for ticket in self._queue.waiting() if self._has_queue else ():
            self._queue.drop(ticket)
            self._fail(ticket, failure)

    def _abandon(self, ticket: Ticket) -> None:
        """Drop a request whose client has disconnected."""
        ticket.stop_timer()
        if ticket.future.done() and not ticket.future.cancelled():
            ticket.future.exception()  # marks it as retrieved
            return
        self._queue.drop(ticket)
        ticket.future.cancel()
        for worker in self.pool.ready:
            worker.abandon(ticket)
        self._finished_without_answer(ticket, self.statistics.cancel, "", "Cancelled", "the client left")
        if not self._running and not self._queue.count:
            self._idle.set()

    def _expire(self, ticket: Ticket, policy: QueuePolicy) -> None:
        ticket.timer = None
        if policy.timeout_action == "DELAY":
            self._queue.delay(ticket)
        elif self._queue.drop(ticket):
            self._fail(ticket, TimedOut(f"the request waited {ticket.timeout_s:.3f} s for model '{self.name}'"))

    def _finished_without_answer(
        self, ticket: Ticket, count: Duration, device: str, failure: str, message: str
    ) -> None:
        total = time.monotonic_ns() - ticket.arrived
        count.add(total)
        self._finished(ticket, (total, 0, 0, 0, total), device, failure=failure, message=message)

    def _finished(self, ticket: Ticket, ns: Sequence[int], device: str, **fields: Any) -> None:
        """Report a finished request. ns: in the queue, of input copies, run and output copies, in total."""
        ticket.stop_timer()
        request = ticket.request
        fields |= {"priority": ticket.level, "started_ns": ticket.started_ns, "bytes_in": ticket.nbytes}
        fields |= zip(_PARTS, (1e-9 * n for n in ns), strict=True)
        self._observers.finished(
            RequestTrace(self.name, self.version, request.id, device, trace=request.trace, **fields)
        )


def _text(text: str, request: InferRequest) -> Tensor:
    """The output tensor of a text, in the shape of the prompt."""
    array = np.empty(request.inputs[0].array.shape, object)
    array.fill(text.encode())
    return Tensor("text_output", "BYTES", array)
