"""WorkerProcess: the server's side of a worker process - it is started, told what to open, given batches, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import knobs
from ...run.api.process.shared_memory import Block
from ..wire import serve_errors
from ..wire.infer_messages import InferResponse
from ..wire.serve_errors import Internal, NotReady, ServeError, WorkerLost
from .request_queue import Ticket
from .shared_memory_batches import Packing, unpack
from .worker_channel import Message, ServerChannel

_PACKAGES = str(Path(__file__).parents[3])
_CODE = (
    f"import sys; sys.path.insert(0, {_PACKAGES!r}); "
    "from opalite.serve.engine.worker_main import main; main(sys.argv[1:])"
)
_END_S = 1.0
_DYING_S = 0.2  # from closing a socket to the end of its process


@dataclass
class Times:
    """Of a batch, in nanoseconds. written: of the monotonic clock, when its inputs were in shared memory."""

    taken: int = 0
    written: int = 0
    started: int = 0
    input: int = 0
    infer: int = 0
    output: int = 0


@dataclass
class Job:
    """A batch that a worker holds."""

    number: int
    tickets: list[Ticket]
    slot: _Slot
    times: Times = field(default_factory=Times)
    text: list[str] = field(default_factory=list)
    responses: list[InferResponse] = field(default_factory=list)


@dataclass(eq=False)
class _Slot:
    """Memory of one batch: the server writes `inputs`, the worker `outputs`."""

    number: int
    inputs: Block | None = None
    outputs: Block | None = None


class WorkerProcess:
    """A process that has been started; `open` tells it what to serve.

    on_done(job, failure): a batch has its responses, or failed. on_stats: what the session says of itself.
    on_lost(jobs): the process has ended, with these batches.
    """

    def __init__(self) -> None:
        own, others = socket.socketpair()
        with others:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _CODE, str(others.fileno())],
                    env=knobs.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(others.fileno(),),
                )
            except BaseException:
                own.close()
                raise
        self.pid = self._process.pid
        self.version = ""
        self.jobs: dict[int, Job] = {}
        self.on_done: Callable[[Job, ServeError | None], None] = lambda job, failure: None
        self.on_stats: Callable[[Mapping[str, Any]], None] = lambda stats: None
        self.ended = asyncio.get_running_loop().create_future()
        self._opened: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._channel = ServerChannel(own, self._hear, self._lose)
        self._slots: list[_Slot] = []
        self._number = 0
        self._reaper: asyncio.Future[int] | None = None

    async def open(self, what: Message, version: str, timeout_s: float) -> Message:
        """Have it open a model, of which `version` is told in responses.

        Returns what the worker tells of the model. Raises what it failed by, NotReady when it took too long.
        """
        self.version = version
        self._channel.send({"op": "open", **what})
        try:
            async with asyncio.timeout(timeout_s):
                message = await asyncio.shield(self._opened)
        except TimeoutError:
            self.kill()
            raise NotReady(f"the worker was not ready within {timeout_s:.0f} s") from None
        if message["op"] == "failed":
            raise _failure_of(message)
        self._slots = [_Slot(n) for n in range(message["holds"])]
        return message

    @property
    def has_room(self) -> bool:
        """Whether it takes another batch."""
        return bool(self._slots) and not self._channel.is_closed

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return not self._channel.is_closed

    def submit(self, tickets: list[Ticket], parameters: Mapping[str, Any]) -> None:
        """Give it a batch; there must be room. OSError where there is no memory for it: nothing has happened then."""
        slot, taken = self._slots[-1], time.monotonic_ns()
        packing = Packing(tickets)
        fds = []
        if slot.inputs is None or slot.inputs.nbytes < packing.nbytes:
            slot.inputs = Block.make(packing.nbytes)
            fds = [slot.inputs.fd]
        packing.write(slot.inputs)
        self._slots.pop()
        self._number += 1
        job = self.jobs[self._number] = Job(self._number, tickets, slot)
        job.times.taken, job.times.written = taken, time.monotonic_ns()
        self._channel.send(
            {
                "op": "run",
                "id": job.number,
                "slot": slot.number,
                "block": slot.inputs.nbytes,
                "inputs": packing.inputs,
                "outputs": [o.name for o in tickets[0].request.outputs],
                "parameters": dict(parameters),
            },
            fds,
        )
        slot.inputs.close_file()

    def cancel(self, ticket: Ticket) -> None:
        """Tell it that nobody waits for a text any more."""
        for job in self.jobs.values():
            if ticket in job.tickets:
                self._channel.send({"op": "cancel", "id": job.number})

    async def stop(self) -> None:
        """Have it end by itself; a second of grace, then it is killed. What it holds is lost."""
        self._channel.close()
        self._lose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._reap())
                return
        self.kill()
        await self._reap()

    def kill(self) -> None:
        """End it now."""
        if self._process.poll() is None:
            self._process.kill()

    async def describe_end(self) -> str:
        """How it ended, in words."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DYING_S):
                await asyncio.shield(self._reap())
        code = self._process.poll()
        if code is None:
            return "it closed its socket"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"it was ended by {signal.Signals(-code).name}"
        return f"it ended with status {code}"

    def _reap(self) -> asyncio.Future[int]:
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        return self._reaper

    def _lose(self) -> None:
        """It is gone: what it held fails, and the memory goes with it."""
        if self.ended.done():
            return
        self._slots = []
        if not self._opened.done():
            self._opened.set_result({"op": "failed", "kind": "WorkerLost", "message": "the worker ended as it started"})
        jobs, self.jobs = list(self.jobs.values()), {}
        self.ended.set_result(None)
        self._reap()
        for job in jobs:
            self.on_done(job, WorkerLost(f"the worker process {self.pid} ended while it held the request"))

    def _hear(self, message: Message, fds: Sequence[int]) -> None:
        op = message["op"]
        if op in ("ready", "failed"):
            if not self._opened.done():
                self._opened.set_result(message)
            return
        job = self.jobs[message["id"]]
        if op == "piece":
            job.text.append(message["text"])
            for ticket in job.tickets:
                if ticket.on_piece is not None:
                    ticket.on_piece(message["text"])
            return
        if fds:
            job.slot.outputs = Block.open(fds[0], message["block"])
        failure: ServeError | None = None
        if op == "error":
            failure = _failure_of(message)
            job.times.started = message["started"]
        else:
            job.times.started, job.times.input, job.times.infer, job.times.output = message["ns"]
            before = time.monotonic_ns()
            try:
                job.responses = unpack(job.tickets, self.version, message["outputs"], job.slot.outputs)
            except ServeError as e:
                failure = e
            job.responses = [_with(r, message["parameters"]) for r in job.responses]
            job.times.output += time.monotonic_ns() - before
            if "stats" in message:
                self.on_stats(message["stats"])
        del self.jobs[job.number]
        self._slots.append(job.slot)
        self.on_done(job, failure)


def _with(response: InferResponse, parameters: Mapping[str, Any]) -> InferResponse:
    if not parameters:
        return response
    return InferResponse(response.model, response.version, response.id, response.outputs, parameters)


def _failure_of(message: Message) -> ServeError:
    kind = getattr(serve_errors, message["kind"], Internal)
    return (kind if issubclass(kind, ServeError) else Internal)(message["message"])
