"""Messages and descriptors between two ends, in pieces of any size, and what no worker would say."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

import pytest

from opalite.serve.engine.worker_channel import FrameDecoder, ServerChannel, WorkerChannel


def test_messages_come_whole() -> None:
    heard: list[Any] = []

    async def talk() -> None:
        loop = asyncio.get_running_loop()
        own, others = socket.socketpair()
        closed, answered = loop.create_future(), loop.create_future()
        read, write = os.pipe()

        def hear(message: Any, fds: list[int]) -> None:
            heard.append((message, len(fds)))
            for fd in fds:
                os.close(fd)
            if message["n"] == 2:
                answered.set_result(None)

        channel = ServerChannel(own, hear, lambda: closed.set_result(None))
        worker = WorkerChannel(others)
        assert worker.cancelled() == []
        channel.send({"n": 1, "text": "x" * 1_000_000}, [write])
        message, fds = await asyncio.to_thread(worker.receive)
        os.write(fds[0], b"seen")
        assert os.read(read, 4) == b"seen"
        for fd in (read, write, *fds):
            os.close(fd)
        assert len(message["text"]) == 1_000_000
        with open(os.devnull) as file:
            await asyncio.to_thread(worker.send, {"n": 1}, [file.fileno()])
        await asyncio.to_thread(worker.send, {"n": 2, "text": "y" * 1_000_000})
        await answered
        others.close()
        await closed
        channel.send({"n": 3})  # to nobody

    asyncio.run(talk())
    assert [(m["n"], fds) for m, fds in heard] == [(1, 1), (2, 0)]


@pytest.mark.parametrize("said", [struct.pack("<II", 1 << 31, 0), struct.pack("<II", 4, 0) + b"{no}"])
def test_what_no_worker_says_ends_the_talk(said: bytes) -> None:
    frames = FrameDecoder()
    frames.feed(said, [])
    with pytest.raises(ValueError):
        frames.next()

    async def talk() -> None:
        own, others = socket.socketpair()
        closed = asyncio.get_running_loop().create_future()
        ServerChannel(own, lambda *_: None, lambda: closed.set_result(None))
        others.sendall(said)
        await asyncio.wait_for(closed, 5)
        others.close()

    asyncio.run(talk())


def test_a_worker_hears_that_the_server_is_gone() -> None:
    own, others = socket.socketpair()
    own.close()
    with others, pytest.raises(EOFError):
        WorkerChannel(others).receive()
