"""Messages between the server and a worker process: JSON over a socket of the machine, with file descriptors.

JSON, because whoever reads it can be made to do nothing by it: a model that takes over a worker has not the server yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode
_HEAD = struct.Struct("<II")
_AT_ONCE = 1 << 16
_MOST_FDS = 8
_LONGEST = 1 << 26


class Frames:
    """Bytes as they come, taken apart into messages, each with the descriptors that were sent with it."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int]) -> None:
        """What came from the socket."""
        self._bytes += data
        self._fds.extend(fds)

    def next(self) -> tuple[Message, list[int]] | None:
        """The next whole message. ValueError for what is none."""
        if len(self._bytes) < _HEAD.size:
            return None
        length, count = _HEAD.unpack_from(self._bytes)
        if length > _LONGEST or count > _MOST_FDS:
            raise ValueError("a message that no worker sends")
        end = _HEAD.size + length
        if len(self._bytes) < end or len(self._fds) < count:
            return None
        message = json.loads(self._bytes[_HEAD.size : end])
        del self._bytes[:end]
        return message, [self._fds.popleft() for _ in range(count)]

    def close(self) -> None:
        """Close descriptors that nobody took."""
        while self._fds:
            os.close(self._fds.popleft())


def _framed(message: Message, count: int) -> bytes:
    text = _encode(message).encode()
    return _HEAD.pack(len(text), count) + text


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(sock, _AT_ONCE, _MOST_FDS)
    return data, fds


class WorkerChannel:
    """The worker's end, which waits. Several threads may use it: each message goes to one of them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._frames = sock, Frames()
        self._receiving, self._sending = threading.RLock(), threading.Lock()

    def receive(self) -> tuple[Message, list[int]]:
        """The next message. EOFError when the server is gone."""
        with self._receiving:
            while (found := self._frames.next()) is None:
                data, fds = _receive(self._sock)
                if not data:
                    raise EOFError
                self._frames.feed(data, fds)
            return found

    def waiting(self) -> tuple[Message, list[int]] | None:
        """A message that is there already."""
        with self._receiving:
            found = self._frames.next()
            if found is None and select.select([self._sock], [], [], 0)[0]:
                found = self.receive()
            return found

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send, and wait until the server has room for it."""
        data = memoryview(_framed(message, len(fds)))
        with self._sending:
            sent = socket.send_fds(self._sock, [data], list(fds)) if fds else 0
            self._sock.sendall(data[sent:])


class ServerChannel:
    """The server's end, on its event loop: sends at once what the socket takes, and the rest when it does."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[Message, list[int]], None],
        on_close: Callable[[], None],
    ) -> None:
        """on_close: called once, when the worker's end is closed or says what no worker says."""
        sock.setblocking(False)
        self._sock, self._frames = sock, Frames()
        self._on_message, self._on_close = on_message, on_close
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)
        self.is_closed = False

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Descriptors are duplicated until they are sent. Nothing happens once the worker is gone."""
        if self.is_closed:
            return
        self._waiting.append((memoryview(_framed(message, len(fds))), [os.dup(fd) for fd in fds]))
        if len(self._waiting) == 1 and not self._flush():
            self._loop.add_writer(self._sock.fileno(), self._write)

    def close(self) -> None:
        """Hear and say nothing more."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._frames.close()
        for _, fds in self._waiting:
            for fd in fds:
                os.close(fd)
        self._waiting.clear()

    def _flush(self) -> bool:
        """Send what the socket takes; whether nothing is left."""
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                sent = socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
            except BlockingIOError:
                return False
            except OSError:
                sent = len(data)  # the reader finds that the worker is gone
            for fd in fds:
                os.close(fd)
            self._waiting.popleft()
            if sent < len(data):
                self._waiting.appendleft((data[sent:], []))
        return True

    def _write(self) -> None:
        if self._flush():
            self._loop.remove_writer(self._sock.fileno())

    def _read(self) -> None:
        try:
            data, fds = _receive(self._sock)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        self._frames.feed(data, fds)
        try:
            while data and not self.is_closed and (found := self._frames.next()) is not None:
                self._on_message(*found)
        except (ValueError, TypeError, KeyError, IndexError, OSError):
            data = b""
        if not data and not self.is_closed:
            self.close()
            with contextlib.suppress(asyncio.CancelledError):
                self._on_close()
