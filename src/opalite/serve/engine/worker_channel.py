"""Channels between server and worker process: JSON over a local socket, with file descriptors.

JSON instead of pickle, so that a compromised worker cannot execute code in the server.
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
_READ_BYTES = 1 << 16
_MOST_FDS = 8
_LONGEST = 1 << 26


class FrameDecoder:
    """Splits received bytes into messages, each with its file descriptors."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int]) -> None:
        self._bytes += data
        self._fds.extend(fds)

    def next(self) -> tuple[Message, list[int]] | None:
        """The next complete message, None if there is none. ValueError for malformed data."""
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
        """Close descriptors that were not taken."""
        while self._fds:
            os.close(self._fds.popleft())


def _framed(message: Message, count: int) -> bytes:
    text = _encode(message).encode()
    return _HEAD.pack(len(text), count) + text


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(sock, _READ_BYTES, _MOST_FDS)
    return data, fds


class WorkerChannel:
    """The worker's blocking end. Several threads may use it: each message goes to one of them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._frames = sock, FrameDecoder()
        self._ahead: deque[tuple[Message, list[int]]] = deque()  # received by `cancelled`, for `receive`
        self._receiving, self._sending = threading.Lock(), threading.Lock()

    def receive(self) -> tuple[Message, list[int]]:
        """Wait for the next message. EOFError when the server has closed the socket."""
        with self._receiving:
            if self._ahead:
                return self._ahead.popleft()
            while (found := self._frames.next()) is None:
                self._read()
            return found

    def _read(self) -> None:
        """Wait for bytes. EOFError when the server has closed the socket."""
        data, fds = _receive(self._sock)
        if not data:
            raise EOFError
        self._frames.feed(data, fds)

    def cancelled(self) -> list[int]:
        """Numbers of the runs that arrived messages cancel. Does not wait; [] while another thread is in `receive`."""
        numbers: list[int] = []
        if not self._receiving.acquire(blocking=False):
            return numbers
        try:
            while True:
                found = self._frames.next()
                if found is None:
                    if not select.select([self._sock], [], [], 0)[0]:
                        return numbers
                    self._read()
                elif found[0]["op"] == "cancel":
                    numbers.append(found[0]["id"])
                else:
                    self._ahead.append(found)
        except EOFError:  # the thread that waits for the end sees it, too
            return numbers
        finally:
            self._receiving.release()

    def wait_for_end(self, timeout_s: float) -> bool:
        """Whether the server closed its end within `timeout_s`."""
        poller = select.poll()
        poller.register(self._sock, select.POLLHUP)
        return any(event & (select.POLLHUP | select.POLLNVAL) for _, event in poller.poll(1000 * timeout_s))

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send a message; block while the socket is full."""
        data = memoryview(_framed(message, len(fds)))
        with self._sending:
            sent = socket.send_fds(self._sock, [data], list(fds)) if fds else 0
            self._sock.sendall(data[sent:])


class ServerChannel:
    """The server's end, on its event loop: sends without blocking and buffers the rest."""

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Message, list[int]], None], on_close: Callable[[], None]
    ) -> None:
        """on_close: called once, when the worker closes its end or sends malformed data."""
        sock.setblocking(False)
        self._sock, self._frames = sock, FrameDecoder()
        self._on_message, self._on_close = on_message, on_close
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)
        self.is_closed = False

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Queue a message. Descriptors are duplicated until they are sent. No effect after the worker's end."""
        if self.is_closed:
            return
        self._waiting.append((memoryview(_framed(message, len(fds))), [os.dup(fd) for fd in fds]))
        if len(self._waiting) == 1 and not self._flush():
            self._loop.add_writer(self._sock.fileno(), self._write)

    def close(self) -> None:
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
        """Send as much as possible; return whether the buffer is empty."""
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                sent = socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
            except BlockingIOError:
                return False
            except OSError:
                sent = len(data)  # the reader handles the closed socket
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
