"""BodyReader: reads and decompresses request bodies within limits."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from ..wire.client_limits import HttpLimits
from ..wire.serve_errors import Busy, EncodingUnknown, Invalid, LengthMissing, TooLarge, TooSlow
from .uvicorn_connection import LINK, Link

Headers = Mapping[bytes, bytes]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_IN_PLACE = 16 * 1024
"""Bodies from this length are received in their final memory; smaller ones arrive in one piece."""
_INFLATE_HERE = 4 * 1024
"""Bodies up to this length are decompressed in the event loop, larger ones in a thread."""


_CLIENT_SHARE = 0.5
"""The part of the memory for bodies that one client may take, so that others are served beside it."""
_FULL = "the bodies of requests that are being answered take all the memory for them, or this client's part; try again"


class DisconnectedError(Exception):
    """The client disconnected while its body was read."""


class BodyReader:
    """Reads bodies and counts the bytes that have come and are held: of all requests, and of each client's."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self.held = 0
        self._of_clients: dict[str, int] = {}
        self._client_bytes = max(limits.held_bytes * _CLIENT_SHARE, limits.body_bytes)

    @asynccontextmanager
    async def read(
        self, scope: Mapping[str, Any], headers: Headers, receive: Receive, most: int | None = None
    ) -> AsyncIterator[memoryview]:
        """The decompressed body, for the duration of the block. most: a limit below the general one.

        TooLarge before the limit is exceeded; Busy if all bodies together are too large; LengthMissing,
        EncodingUnknown, TooSlow; DisconnectedError.
        """
        most = self._limits.body_bytes if most is None else min(most, self._limits.body_bytes)
        declared = _declared(headers)
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"", b"gzip", b"deflate"):
            raise EncodingUnknown(f"Content-Encoding {_text(encoding)} is not supported; send gzip, deflate or none")
        if declared is not None and declared > most:
            raise TooLarge(f"the body has {declared} bytes, and {most} are allowed")
        account = _HeldBytes(self, (scope.get("client") or ("",))[0])
        try:
            try:
                async with asyncio.timeout(self._limits.body_s):
                    body = await self._collect(scope, receive, declared, most, account)
            except TimeoutError:
                raise TooSlow(f"the body did not come within {self._limits.body_s:g} seconds") from None
            if encoding in (b"gzip", b"deflate"):
                is_small = len(body) <= _INFLATE_HERE
                body = _inflate(body, most) if is_small else await asyncio.to_thread(_inflate, body, most)
                account.add(len(body))
            yield body
        finally:
            account.close()

    async def _collect(
        self, scope: Mapping[str, Any], receive: Receive, declared: int | None, most: int, account: _HeldBytes
    ) -> memoryview:
        link: Link | None = scope.get("extensions", {}).get(LINK)
        if link is not None and declared is not None and declared >= _IN_PLACE:
            place = np.empty(declared, np.uint8).data
            link.on_bytes = account.count
            link.collect(place)
            try:
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise DisconnectedError
                    more = message.get("more_body", False)
            except asyncio.CancelledError:
                account.check()
                raise
            finally:
                link.release()
            return place
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise TooLarge(f"the body has more than the {most} bytes that are allowed")
            account.add(len(piece))
            pieces.append(piece)
            if not message.get("more_body", False):
                break
        if declared is not None and size != declared:
            raise Invalid(f"Content-Length says {declared} bytes, and {size} came")
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def hold(self, client: str, size: int) -> bool:
        """Count `size` more bytes of a client (may be negative); False above the limit of all, or of one client."""
        self.held += size
        own = self._of_clients[client] = self._of_clients.get(client, 0) + size
        if not own:
            del self._of_clients[client]
        return self.held <= self._limits.held_bytes and own <= self._client_bytes


class _HeldBytes:
    """The held bytes of one request. Bytes above a limit cancel the task that waits for them."""

    def __init__(self, bodies: BodyReader, client: str) -> None:
        self._bodies, self._client, self._task = bodies, client, asyncio.current_task()
        self._size = 0
        self._fits = True

    def count(self, size: int) -> None:
        """Count bytes that have come, from the connection. Above a limit the task that waits for them is cancelled."""
        self._size += size
        if not self._bodies.hold(self._client, size) and self._fits and self._task is not None:
            self._fits = False
            self._task.cancel()

    def check(self) -> None:
        """Busy instead of the cancellation by `count`."""
        if not self._fits:
            if self._task is not None:
                self._task.uncancel()
            raise Busy(_FULL)

    def add(self, size: int) -> None:
        """Count bytes that have come. Busy above a limit."""
        self._size += size
        if not self._bodies.hold(self._client, size):
            raise Busy(_FULL)

    def close(self) -> None:
        self._bodies.hold(self._client, -self._size)
        self._size = 0


def _declared(headers: Headers) -> int | None:
    """The declared length; None for a chunked body. LengthMissing, Invalid."""
    text = headers.get(b"content-length")
    if text is None:
        if b"chunked" not in headers.get(b"transfer-encoding", b"").lower():
            raise LengthMissing("the request says neither Content-Length nor Transfer-Encoding: chunked")
        return None
    if not text.isdigit() or len(text) > 18:
        raise Invalid(f"Content-Length {_text(text)} is not a number of bytes")
    return int(text)


def _inflate(body: memoryview, most: int) -> memoryview:
    """Decompress gzip, or deflate with zlib's header. Invalid, TooLarge."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        data = stream.decompress(body, most + 1)
    except zlib.error as e:
        raise Invalid(f"the body cannot be decompressed: {e}") from None
    if len(data) > most:
        raise TooLarge(f"the body has more than the {most} bytes that are allowed, decompressed")
    if not stream.eof or stream.unused_data:
        raise Invalid("the compressed body is cut short, or has bytes after its end")
    return memoryview(data)


def _text(value: bytes) -> str:
    """A header's value, shortened for a message."""
    return repr(value[:64].decode("latin-1"))
