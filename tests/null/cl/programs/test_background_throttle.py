"""What planning changes of the process, and puts back."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Iterator

import pytest

from opalite.cl.programs import background_throttle


@pytest.fixture(autouse=True)
def _nobody_else() -> Iterator[None]:
    deadline = time.monotonic() + 60
    while background_throttle._interval.count or background_throttle._work.count:  # threads of other tests
        assert time.monotonic() < deadline
        time.sleep(0.01)
    interval = sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval)
    gc.enable()


def test_the_interpreter_s_switch_interval_is_put_back() -> None:
    before = sys.getswitchinterval()
    with background_throttle.short_switch_interval():
        assert sys.getswitchinterval() < before
        with background_throttle.background_planning():
            pass
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == pytest.approx(before)
    with background_throttle.short_switch_interval():
        sys.setswitchinterval(0.05)  # somebody else's
    assert sys.getswitchinterval() == pytest.approx(0.05)


@pytest.mark.parametrize("was_on", [True, False])
def test_planning_collects_no_garbage(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    with background_throttle.background_planning():
        assert not gc.isenabled()
        with background_throttle.background_planning():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def test_what_planning_made_is_not_looked_through_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    gc.collect()
    monkeypatch.setattr(background_throttle, "_promoted", [0, gc.get_stats()[2]["collections"]])
    with background_throttle.background_planning():
        made = [[i] for i in range(2 * background_throttle._MIN_PROMOTED)]
    assert gc.get_count()[0] < background_throttle._MIN_PROMOTED
    assert background_throttle._promoted[0] >= len(made)
    assert gc.get_freeze_count() == 0
    old = gc.get_objects(generation=2)
    assert any(o is made for o in old)


def test_garbage_among_it_is_found_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        pass

    gc.enable()
    gc.collect()
    with background_throttle.background_planning():
        made = [[i] for i in range(2 * background_throttle._MIN_PROMOTED)]
        node = Node()
        node.me = node  # type: ignore[attr-defined]
        gone = weakref.ref(node)
        del node
    assert gone() is not None
    gc.collect()
    assert gone() is None
    assert made


@pytest.mark.parametrize("case", ["somebody froze objects", "long without a full collection"])
def test_the_collector_s_own_way_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    gc.enable()
    gc.collect()
    unseen = background_throttle._MAX_PROMOTED if case.startswith("long") else 0
    monkeypatch.setattr(background_throttle, "_promoted", [unseen, gc.get_stats()[2]["collections"]])
    if case.startswith("somebody"):
        gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with background_throttle.background_planning():
            made = [[i] for i in range(2 * background_throttle._MIN_PROMOTED)]
        assert gc.get_freeze_count() == frozen
        assert background_throttle._promoted[0] == unseen
        assert made
    finally:
        gc.unfreeze()


def test_an_error_puts_everything_back() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ValueError, match="wrong"), background_throttle.background_planning():
        raise ValueError("wrong")
    assert gc.isenabled()
    assert sys.getswitchinterval() == pytest.approx(before)
    assert not background_throttle._work.count


def test_cores_are_wanted_while_something_is_built_and_for_a_moment_after_a_wait() -> None:
    now = time.perf_counter() + 1  # whatever tests before have waited for is over
    assert not background_throttle.is_contended(now)
    for inside in (background_throttle.background_planning, background_throttle.background_build):
        with inside():
            assert background_throttle.is_contended(now)
        assert not background_throttle.is_contended(now)
    background_throttle.report_contention()
    assert background_throttle.is_contended(time.perf_counter())
    assert not background_throttle.is_contended(now)


def test_a_loop_of_calls_pauses_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, naps = [1.0], []
    monkeypatch.setattr(background_throttle.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(background_throttle.time, "sleep", naps.append)
    since = 1.0
    for _ in range(10):
        now[0] += background_throttle.YIELD_EVERY_S / 4
        since = background_throttle.yield_interpreter(since)
    assert len(naps) == 2
    assert all(0 < nap < background_throttle.YIELD_EVERY_S for nap in naps)
