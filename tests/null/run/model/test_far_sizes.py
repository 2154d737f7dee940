"""Which sizes come back so far from those that a plan was made for that another one is worth trying."""

from __future__ import annotations

import random

from opalite.run.model.far_sizes import FAR, MOST, RETURNS, Far, FarSizes, distance

MADE_FOR = (1, 64, 64)


def test_near_sizes_are_served_as_they_are() -> None:
    far = FarSizes()
    for size in (32, 48, 64, 100, 127):
        assert all(far.come((1, size, 64), MADE_FOR) is Far.NO for _ in range(2 * RETURNS))


def test_sizes_that_come_back_are_due_once() -> None:
    far = FarSizes()
    told = [far.come((1, 224 + 4 * i, 224), MADE_FOR) for i in range(RETURNS + 3)]  # a little different each time
    assert told == [Far.WATCHED] * (RETURNS - 1) + [Far.DUE] + [Far.NO] * 3


def test_sizes_are_counted_apart() -> None:
    far = FarSizes()
    for size in (224, 512, 1200):
        assert far.come((1, size, size), MADE_FOR) is Far.WATCHED


def test_a_stream_of_sizes_tries_few_plans() -> None:
    far, rng = FarSizes(), random.Random(0)
    made = [MADE_FOR]
    due = 0
    for _ in range(2000):
        sizes = rng.randint(1, 64), rng.randint(16, 2048), rng.randint(16, 2048)
        nearest = min(made, key=lambda m: distance(m, sizes))
        if far.come(sizes, nearest) is Far.DUE:
            due += 1
            assert distance(sizes, nearest) >= FAR
            made.append(sizes)
    assert due == MOST
    assert len(far._counts) <= 17
