"""Order and batches of requests: priorities, batch sizes, delays, full queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from opalite.serve.engine.model_config import DynamicBatching, QueuePolicy
from opalite.serve.engine.request_queue import RequestQueue, Ticket
from opalite.serve.wire.infer_messages import InferRequest
from opalite.serve.wire.serve_errors import Busy, Invalid

MS = 1_000_000


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def queue_of(most: int = 4, **batching: Any) -> RequestQueue:
    return RequestQueue(DynamicBatching(**batching), most, 8)


def put(queue: RequestQueue, loop: Any, size: int = 1, key: Any = "k", level: int = 0, at: int = 0) -> Ticket:
    ticket = Ticket(InferRequest("m", ()), loop.create_future(), size, key, level, at, 0)
    queue.put(ticket)
    return ticket


def test_what_waits_goes_together_up_to_the_largest_batch(loop: Any) -> None:
    queue = queue_of()
    tickets = [put(queue, loop, size) for size in (1, 2, 2, 1)]
    assert queue.take(0)[0] == [tickets[0], tickets[1], tickets[3]]
    assert queue.take(0)[0] == [tickets[2]]
    assert queue.take(0) == ([], 0)
    assert queue.count == 0


def test_other_shapes_and_larger_requests_go_alone(loop: Any) -> None:
    queue = queue_of()
    a, b, c, d = put(queue, loop), put(queue, loop, key="other"), put(queue, loop, size=9), put(queue, loop)
    assert queue.take(0)[0] == [a, d]
    assert queue.take(0)[0] == [b]
    assert queue.take(0)[0] == [c]


def test_without_batching_each_goes_alone(loop: Any) -> None:
    queue = RequestQueue(None, 4, 8)
    tickets = [put(queue, loop) for _ in range(2)]
    assert [queue.take(0)[0] for _ in range(2)] == [[t] for t in tickets]


def test_the_oldest_waits_for_others_no_longer_than_the_delay(loop: Any) -> None:
    queue = queue_of(max_queue_delay_microseconds=2000)
    first = put(queue, loop, at=0)
    second = put(queue, loop, at=MS)
    assert queue.take(MS) == ([], MS)
    assert queue.take(2 * MS)[0] == [first, second]
    full = [put(queue, loop, at=0) for _ in range(4)]
    assert queue.take(0)[0] == full


def test_preferred_sizes_go_at_once(loop: Any) -> None:
    queue = queue_of(8, preferred_batch_size=(2, 4), max_queue_delay_microseconds=1000)
    tickets = [put(queue, loop) for _ in range(3)]
    assert queue.take(0)[0] == tickets[:2]
    assert queue.take(0) == ([], MS)
    assert queue.take(MS)[0] == tickets[2:]


def test_priorities_go_first_and_late_ones_last(loop: Any) -> None:
    queue = queue_of(priority_levels=3, default_priority_level=2)
    assert [queue.level_of(p) for p in (0, 1, 3)] == [2, 1, 3]
    with pytest.raises(Invalid, match="from 1 to 3, got 4"):
        queue.level_of(4)
    third, second, first = (put(queue, loop, level=n) for n in (3, 2, 1))
    late = put(queue, loop, level=1)
    queue.delay(late)
    assert [queue.take(0)[0] for _ in range(4)] == [[first], [second], [third], [late]]


def test_dropped_requests_are_passed_over(loop: Any) -> None:
    queue = queue_of()
    a, b, c = (put(queue, loop) for _ in range(3))
    assert queue.drop(b)
    assert not queue.drop(b)
    assert queue.count == 2
    assert queue.take(0)[0] == [a, c]
    queue.put(a, first=True)
    assert queue.waiting() == [a]


def test_a_full_queue_is_busy(loop: Any) -> None:
    queue = queue_of(
        priority_levels=2,
        default_priority_level=1,
        priority_queue_policy={2: QueuePolicy(max_queue_size=1)},
    )
    put(queue, loop, level=2)
    with pytest.raises(Busy, match="1 requests wait"):
        queue.check_capacity(2)
    for _ in range(8):
        queue.check_capacity(1)
        queue.admit(0)
        queue.arrive()
        put(queue, loop, level=1)
    with pytest.raises(Busy, match="8 requests wait"):
        queue.check_capacity(1)
    with pytest.raises(Busy):
        queue.admit(0)


def test_requests_that_were_let_in_keep_their_places_for_a_time(loop: Any) -> None:
    queue = RequestQueue(None, 0, 2)
    put(queue, loop)
    queue.admit(0)
    with pytest.raises(Busy):
        queue.admit(49 * MS)
    queue.admit(51 * MS)  # the first one's client is slow
    queue.arrive()
    queue.admit(51 * MS)
    put(queue, loop)
    queue.arrive()
    with pytest.raises(Busy):
        queue.admit(200 * MS)
