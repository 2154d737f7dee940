"""connection_class: a uvicorn connection with limits and zero-copy bodies.

It extends uvicorn's httptools connection for public servers: it closes idle connections, limits headers in time and
size, refuses in JSON, and reads bodies of a declared length into their final memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from itertools import islice
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ..wire.client_limits import HttpLimits

_HEAD = 16 * 1024
"""Size of the buffer of a request's head, which may contain a small body."""
_PIECE = 256 * 1024
_BODY_S = 5.0
"""Time in which a body may come before its connection may be closed for another one, when there are too many."""
_LOOKED_AT = 64
_LAST_REQUEST_S = 0.3
"""Time for a request that was sent before its client could know that the server stops."""
LINK = "opalite.link"
"""The key of a request's Link in the scope's `extensions`."""


class Link:
    """The connection of a request, as the application sees it."""

    def __init__(self, abort: Callable[[], object]) -> None:
        """abort: closes the connection at once."""
        self.abort = abort
        self.lost = False
        self.on_lost: Callable[[], object] | None = None
        self.on_bytes: Callable[[int], object] | None = None
        self.filled = 0
        self.cycle: RequestResponseCycle | None = None
        self._place: memoryview | None = None

    def collect(self, place: memoryview) -> None:
        """Receive the whole body in `place`; `receive` then returns at its end."""
        if self.cycle is not None:
            came, self.cycle.body = self.cycle.body, bytearray()
            place[: len(came)] = came
            self.filled = len(came)
            if self.on_bytes is not None:
                self.on_bytes(len(came))
        self._place = place

    def wake(self) -> None:
        """Have a waiting `receive` return before the body's end."""
        if self.cycle is not None:
            self.cycle.message_event.set()

    def release(self) -> None:
        """Drop the body's memory and the reference cycle."""
        self._place = self.cycle = self.on_bytes = None

    @property
    def rest(self) -> memoryview | None:
        """The memory for the next bytes; None to receive them through the parser."""
        return None if self._place is None else self._place[self.filled :]


def connection_class(limits: HttpLimits) -> type[HttpToolsProtocol]:
    """The class for uvicorn's option `http`."""
    scratch = _Scratch()
    waiting: dict[Connection, float] = {}  # those without a complete request, and since when; the longest first

    class Connection(HttpToolsProtocol):
        """An HTTP connection with `limits`."""

        _waiting: asyncio.TimerHandle | None = None
        _began = False
        _in_body = False
        _ends = False  # the server stops
        _header_bytes = 0
        _refusal: tuple[int, str] | None = None
        _link: Link | None = None
        _slow_s = 0.0
        _draining: asyncio.TimerHandle | None = None
        _left = 0  # bytes of a declared body not yet received
        _reader: _Reader

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._reader = _Reader(self, scratch)
            transport.set_protocol(self._reader)
            waiting[self] = self.loop.time()
            if len(self.connections) > limits.connections and not self._close_another():
                self._refuse(503, f"there are {limits.connections} connections already; try again later")
            else:
                self._wait_for_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            self._stop_waiting()
            self._stop_draining()
            self._unset_keepalive_if_required()
            unfinished = self.cycle is not None and not self.cycle.response_complete
            super().connection_lost(exc)
            if unfinished and self._link is not None:
                self._link.lost = True
                if self._link.on_lost is not None:
                    self._link.on_lost()

        def data_received(self, data: bytes | memoryview) -> None:
            if not self._in_body:
                data = _without_upgrade(data)
            self._began = False
            super().data_received(data)  # type: ignore[arg-type]  # httptools takes any buffer
            if self._left and not self.transport.is_closing():
                # Reading resumes when the application provides memory, or has answered.
                self.flow.pause_reading()
                self._reader.expect(self._left)
                self._left = 0
            # The parser buffers a header of any length without a callback.
            if self._waiting is not None and not self._began and not self.transport.is_closing():
                self._header_bytes += len(data)
                if self._header_bytes > limits.header_bytes:
                    self._refuse(431, f"the headers of a request may have {limits.header_bytes} bytes")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._began = True
            self._header_bytes = self._left = 0
            self._wait_for_headers()

        def on_url(self, url: bytes) -> None:
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count(len(name) + len(value) + 4)
            super().on_header(name, value)
            # The parser refuses invalid lengths, and a length beside Transfer-Encoding.
            if len(name) == 14 and self.headers[-1][0] == b"content-length" and value.isdigit() and len(value) < 19:
                self._left = int(value) if int(value) >= _HEAD else 0

        def on_headers_complete(self) -> None:
            self._waits_now()
            self._stop_waiting()
            self._in_body = True
            self._link = Link(self.transport.abort)
            cast(dict[str, Any], self.scope)["extensions"] = {LINK: self._link}
            super().on_headers_complete()
            self._link.cycle = self.cycle
            if self._ends:
                self.cycle.keep_alive = False

        def on_body(self, body: bytes) -> None:
            self._left = max(0, self._left - len(body))
            super().on_body(body)

        def body_place(self) -> memoryview | None:
            """The memory for the rest of the body; None to receive it by `body_piece`."""
            return None if self._link is None or self.cycle.response_complete else self._link.rest

        def body_placed(self, size: int) -> None:
            """Count `size` bytes written to that memory."""
            assert self._link is not None
            self._link.filled += size
            if self._link.on_bytes is not None:
                self._link.on_bytes(size)

        def body_piece(self, piece: memoryview) -> None:
            """Receive bytes of a body without memory."""
            if not self.cycle.response_complete:
                super().on_body(bytes(piece))

        def body_ended(self) -> None:
            """Replace the parser, which still waits for the bypassed body."""
            self.parser = httptools.HttpRequestParser(self)
            with contextlib.suppress(AttributeError):  # httptools before 0.6.3
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.on_message_complete()

        def on_message_complete(self) -> None:
            self._in_body = False
            self._stop_draining()
            super().on_message_complete()
            if not self.cycle.response_complete:
                waiting.pop(self, None)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete:  # no further request has come
                self._waits_now()
            if self.cycle.more_body and self.cycle.response_complete:  # discards a refused body
                self._stop_draining()
                self._draining = self.loop.call_later(limits.body_s, self.transport.abort)

        def send_400_response(self, msg: str) -> None:
            """Refuse a request in JSON, and close; uvicorn calls this for parse errors."""
            status, reason = self._refusal or (400, msg)
            body = json.dumps({"error": reason}).encode()
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
            again = b"retry-after: 1\r\n" if status == 503 else b""
            self.transport.write(STATUS_LINE[status] + head + again + b"\r\n" + body)
            self.transport.close()

        def timeout_keep_alive_handler(self) -> None:
            """Close an idle connection; a slow receiver of an answer has longer."""
            if self.transport.is_closing() or not self.transport.get_write_buffer_size():
                super().timeout_keep_alive_handler()
                return
            self._slow_s += limits.idle_s
            if self._slow_s < limits.response_s:
                self.timeout_keep_alive_task = self.loop.call_later(limits.idle_s, self.timeout_keep_alive_handler)
            else:
                self.transport.abort()

        def shutdown(self) -> None:
            """Answer the current request, and close; also one that may be on its way over an idle connection."""
            self._ends = True
            if self.cycle is None or self.cycle.response_complete:
                self.loop.call_later(_LAST_REQUEST_S, self._close_idle)
            else:
                self.cycle.keep_alive = False

        def _waits_now(self) -> None:
            waiting.pop(self, None)
            waiting[self] = self.loop.time()

        def _close_another(self) -> bool:
            """Close the longest idle or slowest connection to make room for this one; False if all are in use."""
            latest = self.loop.time() - _BODY_S
            for other, since in islice(waiting.items(), _LOOKED_AT):
                if other is not self and (since < latest or not other._in_body):
                    del waiting[other]
                    other.transport.close()
                    return True
            return False

        def _close_idle(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _wait_for_headers(self) -> None:
            if self._waiting is None:
                self._waiting = self.loop.call_later(limits.header_s, self._headers_late)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _stop_draining(self) -> None:
            if self._draining is not None:
                self._draining.cancel()
                self._draining = None

        def _headers_late(self) -> None:
            self._waiting = None
            if not self.transport.is_closing() and not self._ends:
                self._refuse(408, f"the headers of a request did not come within {limits.header_s:g} seconds")

        def _count(self, size: int) -> None:
            """Count header bytes. ValueError ends the parsing and refuses the request."""
            self._header_bytes += size
            if self._header_bytes > limits.header_bytes:
                self._refusal = (431, f"the headers of a request may have {limits.header_bytes} bytes")
                raise ValueError(self._refusal[1])

        def _refuse(self, status: int, reason: str) -> None:
            self._refusal = (status, reason)
            self.send_400_response(reason)

    return Connection


def _without_upgrade(data: bytes | memoryview) -> bytes | memoryview:
    """The head of a request without its offer of another protocol, at which the parser would stop before the body.

    Java's client offers h2c (HTTP/2 without TLS) with each first request; a server may ignore it.
    """
    head = bytes(data).partition(b"\r\n\r\n")[0]
    place = head.lower().find(b"\nupgrade:")
    if place < 0:
        return data
    changed = bytearray(data)
    changed[place + 1 : place + 8] = b"x-offer"
    return bytes(changed)


class _Scratch:
    """The read buffer, shared by all connections: its contents are consumed before the next read."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(_PIECE))
        self.head = self.memory[:_HEAD]


class _Reader(asyncio.BufferedProtocol):
    """The asyncio protocol of a transport, in front of a connection's parser.

    The kernel reads a request's head into a small buffer for the parser, and the body directly into its final memory. A
    parsed body of 600 KB was copied four times.
    """

    def __init__(self, parsed: Any, scratch: _Scratch) -> None:
        self._parsed, self._scratch = parsed, scratch
        self._left = 0  # bytes of the body that bypass the parser
        self._placed = False

    def expect(self, size: int) -> None:
        self._left = size

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol; never beyond the end of a body."""
        if not self._left:
            return self._scratch.head
        place = self._parsed.body_place()
        self._placed = place is not None
        return self._scratch.memory[: self._left] if place is None else place

    def buffer_updated(self, nbytes: int) -> None:
        if not self._left:
            self._parsed.data_received(self._scratch.head[:nbytes])
            return
        self._left -= nbytes
        if self._placed:
            self._parsed.body_placed(nbytes)
        else:
            self._parsed.body_piece(self._scratch.memory[:nbytes])
        if not self._left:
            self._parsed.body_ended()

    def eof_received(self) -> None:
        self._parsed.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._parsed.connection_lost(exc)

    def pause_writing(self) -> None:
        self._parsed.pause_writing()

    def resume_writing(self) -> None:
        self._parsed.resume_writing()
