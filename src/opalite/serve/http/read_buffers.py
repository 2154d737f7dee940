"""Reader: zero-copy reception of request bodies.

The kernel reads a request's head into a small buffer for the parser, and the body directly into its final memory. A
parsed body of 600 KB was copied four times.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

HEAD = 16 * 1024
"""Size of the buffer of a request's head, which may contain a small body."""
_PIECE = 256 * 1024


class Parsed(Protocol):
    """The connection that receives the data."""

    def data_received(self, data: memoryview) -> None:
        """Parse bytes of a head."""

    def body_place(self) -> memoryview | None:
        """The memory for the rest of the body; None to receive it by `body_piece`."""

    def body_placed(self, size: int) -> None:
        """Count `size` bytes written to that memory."""

    def body_piece(self, piece: memoryview) -> None:
        """Receive bytes of a body without memory."""

    def body_ended(self) -> None:
        """Handle the end of the body."""

    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Scratch:
    """The read buffer, shared by all connections: its contents are consumed before the next read."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(_PIECE))
        self.head = self.memory[:HEAD]


class Reader(asyncio.BufferedProtocol):
    """The asyncio protocol of a transport, in front of a connection's parser."""

    def __init__(self, parsed: Parsed, scratch: Scratch) -> None:
        self._parsed, self._scratch = parsed, scratch
        self._left = 0  # bytes of the body that bypass the parser
        self._placed = False

    def expect(self, size: int) -> None:
        """Announce a body of `size` bytes."""
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
