"""BodyReader: reads and decompresses request bodies within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import numpy as np

from ..wire.client_limits import HttpLimits
from ..wire.inflate import inflate
from ..wire.memory_budget import Account
from ..wire.serve_errors import EncodingUnknown, Invalid, LengthMissing, MemoryFull, TooLarge, TooSlow
from .uvicorn_connection import LINK, Link

Headers = Mapping[bytes, bytes]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
ACCOUNT = "opalite.account"
"""The key of a request's Account in its scope."""

_IN_PLACE = 16 * 1024
"""Bodies from this length are received in their final memory; smaller ones arrive in one piece."""
_INFLATE_HERE = 4 * 1024
"""Bodies up to this length are decompressed in the event loop, larger ones in a thread."""


class DisconnectedError(Exception):
    """The client disconnected while its body was read."""


class BodyReader:
    """Reads bodies, and counts their bytes, when they have come, in the request's account."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits

    async def read(
        self, scope: Mapping[str, Any], headers: Headers, receive: Receive, most: int | None = None
    ) -> memoryview:
        """The decompressed body. most: a limit below the general one.

        TooLarge before the limit is exceeded; MemoryFull; LengthMissing, EncodingUnknown, TooSlow; DisconnectedError.
        """
        most = self._limits.body_bytes if most is None else min(most, self._limits.body_bytes)
        declared = _declared(headers)
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"", b"gzip", b"deflate"):
            raise EncodingUnknown(f"Content-Encoding {_text(encoding)} is not supported; send gzip, deflate or none")
        if declared is not None and declared > most:
            raise TooLarge(f"the body has {declared} bytes, and {most} are allowed")
        account: Account = scope[ACCOUNT]
        try:
            async with asyncio.timeout(self._limits.body_s):
                body = await self._collect(scope, receive, declared, most, account)
        except TimeoutError:
            raise TooSlow(f"the body did not come within {self._limits.body_s:g} seconds") from None
        if encoding in (b"gzip", b"deflate"):
            came = len(body)
            how = (body, most, account.add, "body")
            body = inflate(*how) if came <= _INFLATE_HERE else await asyncio.to_thread(inflate, *how)
            account.hold(-came)
        return body

    async def _collect(
        self, scope: Mapping[str, Any], receive: Receive, declared: int | None, most: int, account: Account
    ) -> memoryview:
        link: Link | None = scope.get("extensions", {}).get(LINK)
        if link is not None and declared is not None and declared >= _IN_PLACE:
            return await _receive_in_place(link, receive, declared, account)
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


async def _receive_in_place(link: Link, receive: Receive, declared: int, account: Account) -> memoryview:
    """Receive a body in its final memory. MemoryFull as soon as its bytes do not fit."""
    place = np.empty(declared, np.uint8).data
    fits = True

    def count(size: int) -> None:
        nonlocal fits
        if not account.hold(size) and fits:
            fits = False
            link.wake()

    link.on_bytes = count
    link.collect(place)
    try:
        more = True
        while more and fits:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            more = message.get("more_body", False)
    finally:
        link.release()
    if not fits:
        raise MemoryFull
    return place


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


def _text(value: bytes) -> str:
    """A header's value, shortened for a message."""
    return repr(value[:64].decode("latin-1"))
