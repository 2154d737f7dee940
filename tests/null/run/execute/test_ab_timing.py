"""Timing of two ways in turn."""

from __future__ import annotations

from opalite.run.execute.ab_timing import PairedTimes, least_interleaved_seconds


def test_the_least_of_each_way() -> None:
    a, b = iter([3.0, 1.0, 2.0]), iter([5.0, 6.0, 4.0])
    assert least_interleaved_seconds(lambda: next(a), lambda: next(b), rounds=3, most_s=100.0) == (1.0, 4.0)


def test_two_rounds_at_least_and_no_more_once_they_take_long() -> None:
    calls: list[str] = []
    least_interleaved_seconds(lambda: calls.append("a") or 1.0, lambda: calls.append("b") or 1.0, rounds=9, most_s=0.5)  # type: ignore[func-returns-value]
    assert calls == ["a", "b"] * 2


def test_paired_times_alternate() -> None:
    times = PairedTimes()
    for seconds in (3.0, 1.0, 2.0):
        assert not times.is_b_next
        times.a.append(seconds)
        assert times.is_b_next
        times.b.append(2 * seconds)
    assert times.pairs == 3
    assert times.medians == (2.0, 4.0)
