"""The body of a request: read within limits before it is held, decompressed within the same, counted while held."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from ..wire.serve_errors import Busy, Invalid, TooLarge
from .http_errors import EncodingUnknown, LengthMissing, TooSlow
from .http_limits import Limits
from .uvicorn_connection import LINK, Link

Headers = Mapping[bytes, bytes]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_IN_PLACE = 16 * 1024
"""Bodies from this length are collected where they will lie; smaller ones come in one piece anyway."""
_INFLATE_HERE = 4 * 1024
"""Bodies up to this length are decompressed in the loop, larger ones in a thread: there are few of those at a time."""


class DisconnectedError(Exception):
    """The client went away while its body was read."""


class BodyReader:
    """Reads bodies, and knows how many bytes all that are held have."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @asynccontextmanager
    async def read(
        self, scope: Mapping[str, Any], headers: Headers, receive: Receive, most: int | None = None
    ) -> AsyncIterator[memoryview]:
        """The body, decompressed, for the time of the block. most: bytes allowed, where fewer than the limit.

        TooLarge before more than the limit is held; Busy if all bodies together are too many; LengthMissing,
        EncodingUnknown, TooSlow; DisconnectedError.
        """
        most = self._limits.body_bytes if most is None else min(most, self._limits.body_bytes)
        declared = _declared(headers)
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"", b"gzip", b"deflate"):
            raise EncodingUnknown(f"Content-Encoding {_text(encoding)} is not supported; send gzip, deflate or none")
        if declared is not None and declared > most:
            raise TooLarge(f"the body has {declared} bytes, and {most} are allowed")
        account = _HeldBytes(self)
        try:
            account.add(declared or 0)
            try:
                async with asyncio.timeout(self._limits.body_s):
                    body = await self._collect(scope, receive, declared, most, account)
            except TimeoutError:
                raise TooSlow(f"the body did not come within {self._limits.body_s:g} seconds") from None
            if encoding in (b"gzip", b"deflate"):
                body = await _inflated(body, most)
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
            link.collect(place)
            try:
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise DisconnectedError
                    more = message.get("more_body", False)
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
            if declared is None:
                account.add(len(piece))
            pieces.append(piece)
            if not message.get("more_body", False):
                break
        if declared is not None and size != declared:
            raise Invalid(f"Content-Length says {declared} bytes, and {size} came")
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def hold(self, size: int) -> None:
        """Count `size` bytes more, or fewer; Busy where that is too many."""
        if size > 0 and self.held + size > self._limits.held_bytes:
            raise Busy("the bodies of requests that are being answered take all the memory for them; try again")
        self.held += size


class _HeldBytes:
    """What one request holds of it."""

    def __init__(self, bodies: BodyReader) -> None:
        self._bodies = bodies
        self._size = 0

    def add(self, size: int) -> None:
        self._bodies.hold(size)
        self._size += size

    def close(self) -> None:
        self._bodies.hold(-self._size)
        self._size = 0


def _declared(headers: Headers) -> int | None:
    """The length that the headers declare; None for a body in chunks."""
    text = headers.get(b"content-length")
    if text is None:
        if b"chunked" not in headers.get(b"transfer-encoding", b"").lower():
            raise LengthMissing("the request says neither Content-Length nor Transfer-Encoding: chunked")
        return None
    if not text.isdigit() or len(text) > 18:
        raise Invalid(f"Content-Length {_text(text)} is not a number of bytes")
    return int(text)


async def _inflated(body: memoryview, most: int) -> memoryview:
    if len(body) <= _INFLATE_HERE:
        return _inflate(body, most)
    return await asyncio.to_thread(_inflate, body, most)


def _inflate(body: memoryview, most: int) -> memoryview:
    """gzip, or deflate with zlib's header (as HTTP has it), whichever it is."""
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
    """A header's value for a message."""
    return repr(value[:64].decode("latin-1"))
