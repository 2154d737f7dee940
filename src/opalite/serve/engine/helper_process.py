"""HelperProcess: runs functions on large data in a process of its own, because they would stop the event loop.

server → helper   {id, function, sizes, arguments} + memory with the data
helper → server   {id, result, sizes} + memory with the results | {id, kind, message}
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import knobs
from ...run.api.process.shared_memory import Block, align
from ..wire.serve_errors import TooLarge, WorkerLost
from .failure_messages import error_from, failure_message
from .worker_channel import Message, ServerChannel, WorkerChannel

Data = bytes | memoryview
_PACKAGES = str(Path(__file__).parents[3])
_CODE = (
    f"import sys; sys.path.insert(0, {_PACKAGES!r}); "
    "from opalite.serve.engine.helper_process import main; main(int(sys.argv[1]))"
)
_MEMORY = 1 << 29
"""Bytes that a function may allocate: lists of Python's numbers take many times the bytes of their text."""
_LONGEST_S = 60.0
_NICENESS = 4


@dataclass(order=True)
class _Call:
    """A call; smaller ones go first."""

    nbytes: int
    number: int
    message: Message = field(compare=False)
    data: Sequence[Data] = field(compare=False)
    answer: asyncio.Future[tuple[Any, list[memoryview]]] = field(compare=False)


class HelperProcess:
    """The server's handle. The process starts with the first call, and again after its end; it runs one call a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: ServerChannel | None = None
        self._waiting: list[_Call] = []
        self._running: _Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0

    async def call(self, function: str, data: Sequence[Data], arguments: Any) -> tuple[Any, list[memoryview]]:
        """Run 'package.module:function' on the data and arguments (JSON); it returns a result (JSON) and data.

        Raises the function's ServeError; TooLarge if it takes too much memory or time.
        """
        self._number += 1
        nbytes = sum(memoryview(d).nbytes for d in data)
        answer: asyncio.Future[tuple[Any, list[memoryview]]] = asyncio.get_running_loop().create_future()
        message = {"id": self._number, "function": function, "arguments": arguments}
        heapq.heappush(self._waiting, _Call(nbytes, self._number, message, data, answer))
        self._start_next()
        return await answer

    def close(self) -> None:
        """End the process; calls fail."""
        if self._channel is not None:
            self._channel.close()
            self._on_end()

    def _start_next(self) -> None:
        while self._waiting and self._running is None:
            call = heapq.heappop(self._waiting)
            if call.answer.done():  # nobody waits for it
                continue
            try:
                channel = self._channel or self._start()
                block, sizes = _packed(call.data)
            except OSError as e:
                call.answer.set_exception(TooLarge(f"there is no memory or process for the request: {e}"))
                continue
            call.data = ()
            self._running = call
            self._timer = asyncio.get_running_loop().call_later(_LONGEST_S, self._kill)
            channel.send({**call.message, "sizes": sizes, "block": block.nbytes}, [block.fd])
            block.close_file()

    def _start(self) -> ServerChannel:
        own, others = socket.socketpair()
        with others:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CODE, str(others.fileno())],
                env=knobs.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(others.fileno(),),
            )
        self._channel = ServerChannel(own, self._on_message, self._on_end)
        return self._channel

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _on_message(self, message: Message, fds: Sequence[int]) -> None:
        call = self._end_running()
        assert call is not None
        pieces = _unpacked(Block.open(fds[0], message["block"]), message["sizes"]) if fds else []
        if not call.answer.done():
            if "kind" in message:
                call.answer.set_exception(error_from(message))
            else:
                call.answer.set_result((message["result"], pieces))
        self._start_next()

    def _on_end(self) -> None:
        """Handle the end of the process."""
        process, self._process, self._channel = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
        call = self._end_running()
        if call is not None and not call.answer.done():
            call.answer.set_exception(WorkerLost("the process that reads and writes JSON ended; send binary data"))
        self._start_next()

    def _end_running(self) -> _Call | None:
        call, self._running = self._running, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return call


def _packed(data: Sequence[Data]) -> tuple[Block, list[int]]:
    """Shared memory with the data, and the sizes. OSError without memory."""
    sizes = [memoryview(d).nbytes for d in data]
    block = Block.make(max(1, sum(map(align, sizes))))
    at = 0
    for piece, size in zip(data, sizes, strict=True):
        block.bytes.data[at : at + size] = memoryview(piece).cast("B")
        at += align(size)
    return block, sizes


def _unpacked(block: Block, sizes: Sequence[int]) -> list[memoryview]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(block.bytes[at : at + size].data)
        at += align(size)
    return pieces


def main(descriptor: int) -> None:
    """Run calls until the server closes the socket of this descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends this process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(_NICENESS)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    channel = WorkerChannel(socket.socket(fileno=descriptor))
    threading.Thread(target=_end_with_server, args=(channel,), daemon=True).start()
    while True:
        try:
            message, fds = channel.receive()
            answer, block = _run(message, fds)
            channel.send(answer, [] if block is None else [block.fd])
        except (EOFError, OSError):
            os._exit(0)
        if block is not None:
            block.close_file()
        del message, answer, block


def _run(message: Message, fds: Sequence[int]) -> tuple[Message, Block | None]:
    number = message["id"]
    try:
        data = _unpacked(Block.open(fds[0], message["block"]), message["sizes"])
        module, _, name = message["function"].partition(":")
        result, pieces = getattr(importlib.import_module(module), name)(data, message["arguments"])
        block, sizes = _packed(pieces)
    except MemoryError:
        failure = TooLarge("the JSON takes more memory than is allowed for it; send and ask for binary data")
        return {"id": number, **failure_message(failure)}, None
    except Exception as e:
        return {"id": number, **failure_message(e)}, None
    return {"id": number, "result": result, "sizes": sizes, "block": block.nbytes}, block


def _end_with_server(channel: WorkerChannel) -> None:
    while not channel.wait_for_end(_LONGEST_S):
        pass
    os._exit(0)
