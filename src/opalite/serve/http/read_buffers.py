"""What a transport reads into: a small buffer where a head is expected, the place of a body for all that follows.

A transport that hands over bytes has copied them, and a parser that is fed a body copies it again: a body of 600 KB was
copied four times before it lay where it is used. Here the kernel writes it there, and the parser sees the head alone.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

HEAD = 16 * 1024
"""Bytes that are read where a request begins: its head, and with it a body that is small."""
_PIECE = 256 * 1024


class Parsed(Protocol):
    """Who is told what comes: a connection."""

    def data_received(self, data: memoryview) -> None:
        """Bytes for the parser."""

    def body_place(self) -> memoryview | None:
        """Where the rest of the body goes; None: to `body_piece`."""

    def body_placed(self, size: int) -> None:
        """So many bytes more are in that place."""

    def body_piece(self, piece: memoryview) -> None:
        """Bytes of a body that has no place."""

    def body_ended(self) -> None:
        """The body is complete."""

    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Scratch:
    """Bytes between a read and what becomes of it, which is over when the read returns: one for all connections."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(_PIECE))
        self.head = self.memory[:HEAD]


class Reader(asyncio.BufferedProtocol):
    """The protocol of a transport, in front of a connection's parser."""

    def __init__(self, parsed: Parsed, scratch: Scratch) -> None:
        self._parsed, self._scratch = parsed, scratch
        self._left = 0  # bytes of the body that the parser does not see
        self._placed = False

    def expect(self, size: int) -> None:
        """The next `size` bytes are a body's."""
        self._left = size

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol; never beyond the end of a body."""
        if not self._left:
            return self._scratch.head
        place = self._parsed.body_place()
        self._placed = place is not None
        return self._scratch.memory[: self._left] if place is None else place

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
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
