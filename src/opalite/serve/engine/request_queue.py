"""RequestQueue: waiting requests of one model by priority, and the dynamic batcher.

Terms are those of Triton's dynamic batcher and queue policies (model_config.proto).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..wire.infer_messages import InferRequest, InferResponse
from ..wire.serve_errors import Busy, Invalid
from .model_config import DynamicBatching, QueuePolicy

_MAX_SCANNED = 64
"""Requests scanned for a batch; those that do not match the first one are skipped."""
_ADMITTED_NS = 50_000_000
"""Time for which an admitted request reserves its slot while its body is read."""


OnPiece = Callable[[str, tuple[Any, ...]], None]
"""Receives a part of a text, and the log-probabilities of its tokens."""


@dataclass(eq=False)
class Ticket:
    """An accepted request without an answer.

    size: rows of its inputs, 1 without batches. key: equal for requests that may share a batch; None for one that runs
    alone. level: priority, 1 first. arrived: time.monotonic_ns(). on_piece: receives parts of a text.
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
    on_piece: OnPiece | None = None
    waits: bool = field(default=True, init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def stop_timer(self) -> None:
        """Stop the time-out, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class RequestQueue:
    """Orders and batches tickets. Times in nanoseconds of the monotonic clock."""

    def __init__(self, batching: DynamicBatching | None, max_batch_size: int, max_size: int) -> None:
        """batching: None makes no batches. max_size: the default of policies without a queue size."""
        self._most = max_batch_size if batching is not None else 1
        self._batching = batching = batching or DynamicBatching()
        self._preferred = set(batching.preferred_batch_size)
        self._delay_ns = 1000 * batching.max_queue_delay_microseconds
        self._max_size = max_size
        self._levels: dict[int, deque[Ticket]] = {}
        self._counts: dict[int, int] = {}
        self._delayed: deque[Ticket] = deque()  # timed out, served after all others
        self._admitted: deque[int] = deque()  # ends of reservations
        self.count = 0

    def level_of(self, priority: int) -> int:
        """The level of a request's priority; 0 is the default. Invalid for an unknown level."""
        levels = self._batching.priority_levels
        if not levels:
            return 0  # Triton ignores priorities where there are no levels
        level = priority or self._batching.default_priority_level
        if level > levels:
            raise Invalid(f"parameter 'priority' is from 1 to {levels}, got {priority}")
        return level

    def policy_of(self, level: int) -> QueuePolicy:
        return self._batching.priority_queue_policy.get(level, self._batching.default_queue_policy)

    def check_capacity(self, level: int, coming: int = 0) -> None:
        """Busy if the queue is full. coming: reserved slots."""
        most = self.policy_of(level).max_queue_size or self._max_size
        if self._counts.get(level, 0) + coming >= most:
            raise Busy(f"{most} requests wait for the model already, and no more may")

    def admit(self, now: int) -> None:
        """Reserve a slot for a request whose body is not read yet. Busy if the queue is full.

        Without reservations, many requests would be admitted before the first body is read. A reservation is short, so
        that slow clients do not block others.
        """
        while self._admitted and self._admitted[0] < now:
            self._admitted.popleft()
        levels = self._batching.priority_levels
        most = (self.policy_of(level).max_queue_size or self._max_size for level in range(1, levels))
        if all(self._counts.get(n, 0) + len(self._admitted) >= room for n, room in enumerate(most, 1)):
            self.check_capacity(levels, len(self._admitted))
        self._admitted.append(now + _ADMITTED_NS)

    def arrive(self) -> None:
        """Release the oldest reservation: an admitted request has arrived."""
        if self._admitted:
            self._admitted.popleft()

    def put(self, ticket: Ticket, first: bool = False) -> None:
        """Queue a ticket. first: before the others of its level."""
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
        """Remove a ticket; return whether it was waiting."""
        waited = ticket.waits
        if waited:
            ticket.waits = False
            self._count(ticket, -1)
        return waited

    def delay(self, ticket: Ticket) -> None:
        if self.drop(ticket):
            ticket.waits = True
            self._levels[ticket.level].remove(ticket)
            self._delayed.append(ticket)
            self._count(ticket, 1)

    def waiting(self) -> list[Ticket]:
        return [t for line in (*self._levels.values(), self._delayed) for t in line if t.waits]

    def take(self, now: int) -> tuple[list[Ticket], int]:
        """The next batch; or [] and the nanoseconds until one is due, 0 if the queue is empty."""
        line = next((q for q in (*self._levels.values(), self._delayed) if _has_first(q)), None)
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
            line.remove(ticket)  # it may be queued again
        return batch, 0

    def _gather(self, first: Ticket, line: deque[Ticket]) -> list[Ticket]:
        """The tickets that may share a batch with the first one, in order of arrival."""
        batch, size = [], 0
        for ticket in islice(line, _MAX_SCANNED):
            if ticket.waits and ticket.key == first.key and size + ticket.size <= self._most:
                batch.append(ticket)
                size += ticket.size
                if size == self._most:
                    break
        return batch

    def _prefer(self, batch: list[Ticket]) -> tuple[list[Ticket], bool]:
        """(the longest prefix of a preferred size, else the whole batch; whether its size is preferred)."""
        if self._preferred:
            size = sum(t.size for t in batch)
            for count in range(len(batch), 0, -1):
                if size in self._preferred:
                    return batch[:count], True
                size -= batch[count - 1].size
        return batch, False

    def _count(self, ticket: Ticket, change: int) -> None:
        self.count += change
        self._counts[ticket.level] = self._counts.get(ticket.level, 0) + change


def timeout_of(request: InferRequest, policy: QueuePolicy) -> float:
    """The maximal wait of a request in seconds, 0 for no limit. A request may shorten the policy's."""
    asked, most = request.timeout_s, policy.default_timeout_microseconds * 1e-6
    if not asked or not policy.allow_timeout_override:
        return most
    return min(asked, most) if most else asked


def _has_first(line: deque[Ticket]) -> bool:
    while line and not line[0].waits:
        line.popleft()
    return bool(line)
