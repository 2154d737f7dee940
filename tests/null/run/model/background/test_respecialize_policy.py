"""The sizes that come back and are so far from those of their plan that another plan is worth trying."""

from __future__ import annotations

import random

from opalite.run.model.background.respecialize_policy import (
    ALIKE,
    FAR,
    MOST,
    RETURNS,
    DistantShape,
    RespecializePolicy,
    distance,
)

MADE_FOR = (1, 64, 64)


def test_near_sizes_are_served_as_they_are() -> None:
    far = RespecializePolicy()
    for size in (32, 48, 64, 100, 127):
        assert all(far.record_run((1, size, 64), MADE_FOR) is DistantShape.NO for _ in range(2 * RETURNS))


def test_sizes_that_come_back_are_due_once() -> None:
    far = RespecializePolicy()
    decisions = [far.record_run((1, 224, 224), MADE_FOR) for _ in range(RETURNS + 3)]
    assert decisions == [DistantShape.WATCHED] * (RETURNS - 1) + [DistantShape.DUE] + [DistantShape.NO] * 3
    assert far.record_run((1, 256, 200), MADE_FOR) is DistantShape.NO, "alike"


def test_sizes_that_are_alike_are_due_later() -> None:
    far = RespecializePolicy()
    decisions = [far.record_run((1, 224 + i % 100, 224), MADE_FOR) for i in range(ALIKE + 3)]
    assert decisions == [DistantShape.WATCHED] * (ALIKE - 1) + [DistantShape.DUE] + [DistantShape.NO] * 3


def test_sizes_are_counted_apart() -> None:
    far = RespecializePolicy()
    sizes = [(1, n, n) for n in (224, 512, 1200)] * (RETURNS - 1)
    assert {far.record_run(s, MADE_FOR) for s in sizes} == {DistantShape.WATCHED}


def test_sizes_that_come_twice_and_go_are_not_worth_a_plan() -> None:
    far = RespecializePolicy()
    sizes = [(1, 32 * h, 32 * w) for h in range(4, 15) for w in range(6, 15)] * 2
    assert len(sizes) < ALIKE
    assert not any(far.record_run(s, MADE_FOR) is DistantShape.DUE for s in sizes for _ in range(RETURNS - 1))


def test_a_stream_of_sizes_tries_few_plans() -> None:
    far, rng = RespecializePolicy(), random.Random(0)
    made = [MADE_FOR]
    due = 0
    for _ in range(2000):
        sizes = rng.randint(1, 64), rng.randint(16, 2048), rng.randint(16, 2048)
        nearest = min(made, key=lambda m: distance(m, sizes))
        for _ in range(RETURNS):
            if far.record_run(sizes, nearest) is DistantShape.DUE:
                due += 1
                assert distance(sizes, nearest) >= FAR
                made.append(sizes)
    assert due == MOST
    assert max(len(far._same), len(far._alike)) <= 8
