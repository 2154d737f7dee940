"""RequestQueue: requests of one model that wait, by priority, and the batches that are made of them.

In the terms of Triton's dynamic batcher and its queue policies; model_config.proto says what each means.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..wire.infer_messages import InferRequest, InferResponse
from ..wire.serve_errors import Busy, Invalid
from .model_config import DynamicBatching, QueuePolicy

_LOOKED_AT = 64
"""Requests that are looked at for a batch: those that do not fit the first one are passed over."""


_COMING_NS = 50_000_000
"""How long a request that was let in keeps a place while its body is read."""
_PLAIN = QueuePolicy()


@dataclass(eq=False)
class Ticket:
    """A request that was accepted, until it has its answer.

    size: rows of its inputs, 1 where it takes no part in batches. key: equal for requests that may share a batch; None
    for one that runs alone. level: its priority, 1 first. arrived: nanoseconds of time.monotonic_ns().
    on_piece: takes parts of a text.
    """

    request: InferRequest
    future: asyncio.Future[InferResponse]
    size: int
    key: Any
    level: int
    arrived: int
    nbytes: int
    timeout_s: float = 0.0
    started_ns: int = 0
    on_piece: Callable[[str], None] | None = None
    waits: bool = field(default=True, init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


class RequestQueue:
    """Who is first, and with whom. Times in nanoseconds of the monotonic clock."""

    def __init__(self, batching: DynamicBatching | None, max_batch_size: int, max_size: int) -> None:
        """batching: None makes no batches. max_size: where a policy does not say how many may wait."""
        self._batching = batching
        self._most = max_batch_size if batching is not None else 1
        self._preferred = sorted(batching.preferred_batch_size) if batching is not None else []
        self._delay_ns = 1000 * batching.max_queue_delay_microseconds if batching is not None else 0
        self._max_size = max_size
        self._levels: dict[int, deque[Ticket]] = {}
        self._counts: dict[int, int] = {}
        self._late: deque[Ticket] = deque()  # whose time is over, and who wait behind the others
        self._coming: deque[int] = deque()  # until when requests that were let in count
        self.count = 0

    def level_of(self, priority: int) -> int:
        """The level of a request's priority, 0 being the default. Invalid for one that there is not."""
        levels = self._batching.priority_levels if self._batching is not None else 0
        if not levels:
            return 0  # Triton ignores priorities where there are no levels
        assert self._batching is not None
        level = priority or self._batching.default_priority_level
        if level > levels:
            raise Invalid(f"parameter 'priority' is from 1 to {levels}, got {priority}")
        return level

    def policy_of(self, level: int) -> QueuePolicy:
        """How requests of a level wait."""
        if self._batching is None:
            return _PLAIN
        own: Mapping[int, QueuePolicy] = self._batching.priority_queue_policy
        return own.get(level, self._batching.default_queue_policy)

    def check_room(self, level: int, coming: int = 0) -> None:
        """Busy where no more may wait, when `coming` others have come."""
        most = self.policy_of(level).max_queue_size or self._max_size
        if self._counts.get(level, 0) + coming >= most:
            raise Busy(f"{most} requests wait for the model already, and no more may")

    def admit(self, now: int) -> None:
        """Let a request in, whatever its priority, which comes as soon as its body is read. Busy where none may wait.

        Those that were let in lately and have not come count as if they waited, because many ask before the first one's
        body is read. Not for long, or clients that are slow would keep others out.
        """
        while self._coming and self._coming[0] < now:
            self._coming.popleft()
        levels = self._batching.priority_levels if self._batching is not None else 0
        most = (self.policy_of(level).max_queue_size or self._max_size for level in range(1, levels))
        if all(self._counts.get(n, 0) + len(self._coming) >= room for n, room in enumerate(most, 1)):
            self.check_room(levels, len(self._coming))
        self._coming.append(now + _COMING_NS)

    def arrive(self) -> None:
        """A request has come: one that was let in, if there are such."""
        if self._coming:
            self._coming.popleft()

    def put(self, ticket: Ticket, first: bool = False) -> None:
        """Let it wait; first: before the others of its level, because it has had its turn."""
        level = self._levels.get(ticket.level)
        if level is None:
            self._levels[ticket.level] = level = deque()
            self._levels = dict(sorted(self._levels.items()))
        ticket.waits = True
        if first:
            level.appendleft(ticket)
        else:
            level.append(ticket)
        self._count(ticket, 1)

    def drop(self, ticket: Ticket) -> bool:
        """Let it wait no longer; whether it did."""
        waited = ticket.waits
        if waited:
            ticket.waits = False
            self._count(ticket, -1)
        return waited

    def delay(self, ticket: Ticket) -> None:
        """Let it wait behind all others."""
        if self.drop(ticket):
            ticket.waits = True
            # The old place is found taken: a ticket is in one line at a time.
            self._levels[ticket.level].remove(ticket)
            self._late.append(ticket)
            self._count(ticket, 1)

    def waiting(self) -> list[Ticket]:
        """All that wait, first to last."""
        return [t for line in (*self._levels.values(), self._late) for t in line if t.waits]

    def take(self, now: int) -> tuple[list[Ticket], int]:
        """The next batch; or none, and in how many nanoseconds one is due, 0 where nobody waits."""
        line = next((q for q in (*self._levels.values(), self._late) if _has_first(q)), None)
        if line is None:
            return [], 0
        first = line[0]
        batch = [first] if first.key is None or first.size >= self._most else self._gather(first, line)
        size = sum(t.size for t in batch)
        if first.key is not None and size < self._most:
            batch, is_preferred = self._prefer(batch)
            due = first.arrived + self._delay_ns
            if not is_preferred and now < due:
                return [], due - now
        for ticket in batch:
            self.drop(ticket)
            line.remove(ticket)  # it may come back
        return batch, 0

    def _gather(self, first: Ticket, line: deque[Ticket]) -> list[Ticket]:
        """Those that may go with the first one, in the order in which they came."""
        batch, size = [], 0
        for ticket in _alive(line):
            if ticket.key == first.key and size + ticket.size <= self._most:
                batch.append(ticket)
                size += ticket.size
                if size == self._most:
                    break
        return batch

    def _prefer(self, batch: list[Ticket]) -> tuple[list[Ticket], bool]:
        """The longest beginning of a batch that has a preferred size, if there is one."""
        if self._preferred:
            sizes, size = set(self._preferred), sum(t.size for t in batch)
            for count in range(len(batch), 0, -1):
                if size in sizes:
                    return batch[:count], True
                size -= batch[count - 1].size
        return batch, False

    def _count(self, ticket: Ticket, change: int) -> None:
        self.count += change
        self._counts[ticket.level] = self._counts.get(ticket.level, 0) + change


def timeout_of(request: InferRequest, policy: QueuePolicy) -> float:
    """How long a request may wait, in seconds; 0 for any time. A request may ask for less than the policy allows."""
    asked, most = request.timeout_s, policy.default_timeout_microseconds * 1e-6
    if not asked or not policy.allow_timeout_override:
        return most
    return min(asked, most) if most else asked


def _has_first(line: deque[Ticket]) -> bool:
    while line and not line[0].waits:
        line.popleft()
    return bool(line)


def _alive(line: deque[Ticket]) -> Iterator[Ticket]:
    for number, ticket in enumerate(line):
        if number == _LOOKED_AT:
            return
        if ticket.waits:
            yield ticket
