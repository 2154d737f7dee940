"""MessageReader: reads the messages of gRPC clients within the server's memory.

Messages come decompressed by this module, since grpc would do it before their size can be counted.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from ..wire.inflate import inflate
from ..wire.memory_budget import Account, MemoryBudget
from ..wire.serve_errors import Invalid, MemoryFull
from .received_bytes import ReceivedBytes, client_of, peer_name

_LOOK_S = 0.02
"""Messages that take longer to come are counted meanwhile, and how often."""
_SEARCHING = 20
"""Looks are at least as many times as far apart as a search for connections takes."""
_HEADERS = 1024
"""Estimated bytes of a call besides its message."""
_INFLATE_HERE = 4 * 1024


@dataclass(eq=False)
class _Message:
    """A message that is coming. task: reads it. is_slow: it was coming at the last look, too."""

    task: asyncio.Task[Any]
    is_slow: bool = False
    is_refused: bool = False


@dataclass(eq=False)
class _Connection:
    """A client's connection while messages come. account: of their bytes that have come, in number `counted`.

    base: bytes that it had received before; delivered: in whole messages since.
    """

    account: Account
    counted: int = 0
    base: int = 0
    delivered: int = 0
    coming: dict[_Message, None] = field(default_factory=dict)

    def count(self, came: int) -> bool:
        """Set the bytes of incomplete messages; return whether they fit."""
        change, self.counted = came - self.counted, came
        return self.account.hold(change)

    def look(self, received: int) -> None:
        """Count the bytes received for messages that were coming at the last look. Refuse half if they do not fit.

        Which message of a connection has the bytes is not known: the newest are refused.
        """
        slow = [m for m in self.coming if m.is_slow and not m.is_refused]
        for message in self.coming:
            message.is_slow = True
        if not slow:
            self.base, self.delivered = received, 0
        came = max(0, received - self.base - self.delivered)
        if not self.count(came) and slow:
            refused = slow[len(slow) // 2 :]
            part = came * len(refused) // len(slow)
            self.delivered += part
            self.count(came - part)
            for message in refused:
                message.is_refused = True
                message.task.cancel()


class MessageReader:
    """Reads messages of all calls. message_bytes: the limit of a decompressed one."""

    def __init__(self, memory: MemoryBudget, message_bytes: int) -> None:
        self._memory, self._most = memory, message_bytes
        self._received = ReceivedBytes()
        self._connections: dict[str, _Connection] = {}
        self._looking: asyncio.Task[None] | None = None

    def account(self, context: Any) -> Account:
        """The account of a message of a call, closed at the call's end at the latest."""
        account = self._memory.account(client_of(context.peer()))
        context.add_done_callback(lambda _: account.close())
        return account

    async def one(self, context: Any, account: Account) -> memoryview:
        """The message of a call that has one. Invalid without one; and as `next`."""
        found = await self.next(context, account)
        if found is None:
            raise Invalid("the call has no message")
        return found

    async def next(self, context: Any, account: Account) -> memoryview | None:
        """The next message; None at the end. MemoryFull, TooLarge, Invalid."""
        peer = peer_name(context.peer())
        connection = self._connections.get(peer)
        if connection is None:
            connection = self._connections[peer] = _Connection(self._memory.account(client_of(peer)))
        task = asyncio.current_task()
        assert task is not None
        message = _Message(task)
        connection.coming[message] = None
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            raw = await context.read()  # grpc's iterator keeps the last message
        except asyncio.CancelledError:
            if not message.is_refused:
                raise
            task.uncancel()
            raise MemoryFull from None
        finally:
            del connection.coming[message]
            if not connection.coming:
                connection.account.close()
                self._connections.pop(peer, None)
        if not isinstance(raw, bytes):  # grpc.aio.EOF
            return None
        connection.delivered += len(raw) + _HEADERS
        connection.count(max(0, connection.counted - len(raw)))
        account.add(len(raw))
        if not _is_compressed(raw):
            return memoryview(raw)
        how = (memoryview(raw), self._most, account.add, "message")
        found = inflate(*how) if len(raw) <= _INFLATE_HERE else await asyncio.to_thread(inflate, *how)
        account.hold(-len(raw))
        return found

    async def _look(self) -> None:
        """Count what has come of messages that take long."""
        pause = _LOOK_S
        try:
            while self._connections:
                await asyncio.sleep(pause)
                pause = _LOOK_S
                if any(self._received.known(peer) is None for peer in self._connections):
                    started = time.monotonic()
                    self._received.find()
                    pause = max(pause, _SEARCHING * (time.monotonic() - started))
                for peer, connection in self._connections.items():
                    if (received := self._received.known(peer)) is not None:
                        connection.look(received)
        finally:
            self._looking = None


def _is_compressed(raw: bytes) -> bool:
    """Whether a message is gzip's or zlib's. None of the protocol's begins with these bytes, which name no field."""
    return raw[:2] == b"\x1f\x8b" or (len(raw) > 1 and raw[0] == 0x78 and int.from_bytes(raw[:2], "big") % 31 == 0)
