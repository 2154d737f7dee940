"""WorkerProcess: the server's handle of a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ... import knobs
from ...run.api.process.shared_memory import Block
from ..wire.infer_messages import InferResponse
from ..wire.serve_errors import NotReady, ServeError, WorkerLost
from .failure_messages import error_from
from .request_queue import Ticket
from .shared_memory_batches import KEPT_BYTES, BatchLayout, unpack
from .worker_channel import Message, ServerChannel

_PACKAGES = str(Path(__file__).parents[3])
_CODE = (
    f"import sys; sys.path.insert(0, {_PACKAGES!r}); "
    "from opalite.serve.engine.worker_main import main; main(sys.argv[1:])"
)
_END_S = 1.0
_DYING_S = 0.2  # from closing the socket to the end of the process
_OVERDUE_S, _ABANDONED_S = 1.0, 10.0
"""Time that a cancelled run has to end in, before its process is killed: after its time-out; when its clients left."""
_STOPPED_S, _SILENT_S = 1.5, 30.0
"""Silence after which a worker is killed: one stopped by a signal; any other, whose calls may hold the GIL for long."""


@dataclass
class Times:
    """Times of a batch in nanoseconds. taken, written, started: of the monotonic clock; written: inputs copied."""

    taken: int = 0
    written: int = 0
    started: int = 0
    input: int = 0
    infer: int = 0
    output: int = 0

    @property
    def parts(self) -> tuple[int, int, int]:
        """The times of input copies, run and output copies."""
        return self.written - self.taken + self.input, self.infer, self.output


@dataclass
class WorkerBatch:
    """A batch in a worker."""

    number: int
    tickets: list[Ticket]
    slot: _Slot
    times: Times = field(default_factory=Times)
    text: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    responses: list[InferResponse] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None  # of a run that has begun: its time-out, or the end of its cancellation
    cancelled: tuple[float, str] | None = None  # seconds that its end may take, and the reason
    begun: bool = True  # False for a batch that a lost worker had not begun


@dataclass(eq=False)
class _Slot:
    """Shared memory of one batch: the server writes `inputs`, the worker `outputs`."""

    number: int
    inputs: Block | None = None
    outputs: Block | None = None

    def free_large(self) -> None:
        """Free memory that is too large to be kept; the worker frees it by the same rule."""
        if self.inputs is not None and self.inputs.nbytes > KEPT_BYTES:
            self.inputs = None
        if self.outputs is not None and self.outputs.nbytes > KEPT_BYTES:
            self.outputs = None


class WorkerProcess:
    """A started process; `open` has it load a model.

    on_done(batch, failure): called when a batch has its responses or failed. on_overdue: called when its run exceeds
    `run_timeout_s`. on_stats: called with session statistics. heard: when the process last sent anything, in seconds of
    the monotonic clock; 0 before its first message.
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
        self.jobs: dict[int, WorkerBatch] = {}
        self.on_done: Callable[[WorkerBatch, ServeError | None], None] = lambda job, failure: None
        self.on_overdue: Callable[[WorkerBatch], None] = lambda job: None
        self.run_timeout_s = 0.0
        self.heard = 0.0
        self._why_killed = ""
        self._concurrency = 1
        self.on_stats: Callable[[Mapping[str, Any]], None] = lambda stats: None
        self.ended = asyncio.get_running_loop().create_future()
        self._opened: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._channel = ServerChannel(own, self._on_message, self._on_end)
        self._slots: list[_Slot] = []
        self._number = 0
        self._reaper: asyncio.Future[int] | None = None

    async def open(self, what: Message, version: str, timeout_s: float) -> Message:
        """Load a model; `version` is sent in responses.

        Returns the description of the model. Raises the worker's error, NotReady after the timeout.
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
            raise error_from(message)
        self._slots = [_Slot(n) for n in range(message["max_batches"])]
        self._concurrency = message["concurrency"]
        return message

    @property
    def has_capacity(self) -> bool:
        return bool(self._slots) and not self._channel.is_closed

    def submit(self, tickets: list[Ticket], parameters: Mapping[str, Any]) -> None:
        """Send a batch; requires capacity. OSError without shared memory, before any effect."""
        slot, taken = self._slots[-1], time.monotonic_ns()
        packing = BatchLayout(tickets)
        fds = []
        if slot.inputs is None or slot.inputs.nbytes < packing.nbytes:
            slot.inputs = Block.make(packing.nbytes)
            fds = [slot.inputs.fd]
        packing.write(slot.inputs)
        self._slots.pop()
        self._number += 1
        job = self.jobs[self._number] = WorkerBatch(self._number, tickets, slot)
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
        self._start_timers()

    def abandon(self, ticket: Ticket) -> None:
        """Cancel the run that holds a ticket, if no other of its tickets waits."""
        for job in self.jobs.values():
            if ticket in job.tickets and all(t.future.done() for t in job.tickets):
                self._cancel(job, _ABANDONED_S, "all clients of its run had left")

    def kill_if_silent(self, now: float) -> None:
        """Kill a process that has stopped to send."""
        silence = now - self.heard
        if self.heard and silence > (_STOPPED_S if is_stopped(self.pid) else _SILENT_S):
            self.kill(f"it gave no sign of life for {silence:.1f} s")

    async def stop(self) -> None:
        """Close the channel, and kill the process after a second. Its batches fail."""
        self._channel.close()
        self._on_end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._reap())
                return
        self.kill()
        await self._reap()

    def kill(self, why: str = "") -> None:
        """Kill the process. why: the reason, for errors and logs."""
        if self._process.poll() is None:
            self._why_killed = self._why_killed or why
            self._process.kill()

    async def describe_end(self) -> str:
        """The reason why the process has ended."""
        if self._why_killed:
            return f"it was killed, because {self._why_killed}"
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

    def _on_end(self) -> None:
        """Handle the end of the process: its batches fail."""
        if self.ended.done():
            return
        self._slots = []
        if not self._opened.done():
            self._opened.set_result({"op": "failed", "kind": "WorkerLost", "message": "the worker ended as it started"})
        jobs, self.jobs = list(self.jobs.values()), {}
        self.ended.set_result(None)
        self._reap()
        why = f", because {self._why_killed}" if self._why_killed else ""
        for place, job in enumerate(jobs):
            self._stop_timer(job)
            job.begun = place < self._concurrency
            self.on_done(job, WorkerLost(f"the worker process {self.pid} ended while it held the request{why}"))

    def _start_timers(self) -> None:
        """Start the timers of runs that have begun: the worker runs its batches in order, `concurrency` at once."""
        loop = asyncio.get_running_loop()
        for job in islice(self.jobs.values(), self._concurrency):
            if job.timer is not None:
                continue
            if job.cancelled is not None:
                patience_s, why = job.cancelled
                job.timer = loop.call_later(patience_s, self.kill, f"{why}, and it could not be cancelled")
            elif self.run_timeout_s:
                job.timer = loop.call_later(self.run_timeout_s, self._overdue, job)

    def _stop_timer(self, job: WorkerBatch) -> None:
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None

    def _overdue(self, job: WorkerBatch) -> None:
        self._cancel(job, _OVERDUE_S, f"a run took longer than {self.run_timeout_s:g} s")
        self.on_overdue(job)

    def _cancel(self, job: WorkerBatch, patience_s: float, why: str) -> None:
        """Cancel a run, and kill the process if the run does not end within `patience_s`."""
        if job.cancelled is None:
            job.cancelled = patience_s, why
            self._channel.send({"op": "cancel", "id": job.number})
            self._stop_timer(job)
            self._start_timers()

    def _on_message(self, message: Message, fds: Sequence[int]) -> None:
        self.heard = time.monotonic()
        op = message["op"]
        if op == "alive":
            return
        if op in ("ready", "failed"):
            if not self._opened.done():
                self._opened.set_result(message)
            return
        job = self.jobs[message["id"]]
        if op == "piece":
            job.text.append(message["text"])
            job.logprobs += message["logprobs"]
            if job.cancelled is None:
                self._stop_timer(job)
                self._start_timers()
            for ticket in job.tickets:
                if ticket.on_piece is not None:
                    ticket.on_piece(message["text"], tuple(message["logprobs"]))
            return
        if fds:
            job.slot.outputs = Block.open(fds[0], message["block"])
        failure: ServeError | None = None
        if op == "error":
            failure = error_from(message)
            job.times.started = message["started"]
        else:
            job.times.started, job.times.input, job.times.infer, job.times.output = message["ns"]
            before = time.monotonic_ns()
            try:
                job.responses = unpack(job.tickets, self.version, message["outputs"], job.slot.outputs)
            except ServeError as e:
                failure = e
            if parameters := message["parameters"]:
                job.responses = [replace(r, parameters=parameters) for r in job.responses]
            job.times.output += time.monotonic_ns() - before
            if "stats" in message:
                self.on_stats(message["stats"])
        self._stop_timer(job)
        del self.jobs[job.number]
        self._start_timers()
        job.slot.free_large()
        self._slots.append(job.slot)
        self.on_done(job, failure)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process; False where the system does not report it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in (b"T", b"t")
