"""Threads of one session that want the device at once: each has memory of its own, and none waits for all of a run."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.runtime import Runtime
from opalite.errors import DeviceError
from opalite.run.execute.executable import Executable
from opalite.run.execute.strategies import time_slicing
from opalite.run.execute.strategies.time_slicing import TimeSlicedQueue
from opalite.run.model import concurrent_runs

from ....helpers.small_models import classifier, noise
from ..api.test_threads import KNOWN, NEW, PATIENCE_S, running

SIZES = [{"x": noise(1 + i % 3, 3, 8 + 5 * i, 30 - 2 * i, seed=i)} for i in range(6)]


@pytest.fixture
def session(rt: Runtime) -> opalite.InferenceSession:
    """With all sizes known."""
    found = opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32")
    for feeds in (*SIZES, KNOWN, NEW):
        found.run(None, feeds)
    assert found.settle(PATIENCE_S)
    for feeds in (*SIZES, NEW, KNOWN):
        found.run(None, feeds)
    return found


def meet(session: opalite.InferenceSession) -> None:
    """As if threads had just waited for each other."""
    session._lock.concurrent.note_contention()


@pytest.mark.parametrize("slice_s", [time_slicing.SLICE_S, 1e-9])
@pytest.mark.parametrize("uses_megakernel", [False, True])
def test_answers_are_those_of_one_thread(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch, slice_s: float, uses_megakernel: bool
) -> None:
    """Of threads that bring sizes in turn and at random, beside one that repeats its own; before and after loops are
    there."""
    monkeypatch.setattr(time_slicing, "SLICE_S", slice_s)
    if uses_megakernel:
        for _ in range(30):
            for feeds in SIZES:
                session.run(None, feeds)
        for executable in [c.executable for cache in session._model.caches for c in cache.all]:
            for job in [job for builder in executable._megakernels.builders for job in builder.jobs]:
                assert job.wait(PATIENCE_S)
    wants = [session.run(None, f)[0] for f in SIZES]
    faults: list[str] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for k in range(120):
            i = 0 if number == 0 else k % len(SIZES) if number == 1 else int(random.integers(len(SIZES)))
            if not np.array_equal(session.run(None, SIZES[i])[0], wants[i]):
                faults.append(f"size {i} in thread {number}")

    meet(session)
    before = session.stats()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    after = session.stats()
    assert not faults
    assert after.runs - before.runs == 4 * 120
    assert after.concurrent_runs > before.concurrent_runs


def test_a_short_run_comes_between_two_slices(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long one is held up after its first slice, and has computed nothing wrong when it goes on."""
    (want,) = session.run(None, NEW)
    (known,) = session.run(None, KNOWN)
    monkeypatch.setattr(time_slicing, "SLICE_S", 1e-9)
    begun, go = threading.Event(), threading.Event()
    real = concurrent_runs.ConcurrentRuns.exclusive
    slices: list[Any] = []

    def exclusive(self: concurrent_runs.ConcurrentRuns) -> Any:
        slices.append(None)
        if len(slices) == 2:
            begun.set()
            assert go.wait(PATIENCE_S)
        return real(self)

    monkeypatch.setattr(concurrent_runs.ConcurrentRuns, "exclusive", exclusive)
    answers: list[Any] = []
    meet(session)
    with running(lambda: answers.extend(session.run(None, NEW))):
        assert begun.wait(PATIENCE_S)
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, KNOWN)[0], known)
        assert not answers
        go.set()
    np.testing.assert_array_equal(answers[0], want)
    assert len(slices) > 2


def test_nobody_starves(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of slices beside one that leaves the turn for microseconds only."""
    monkeypatch.setattr(time_slicing, "SLICE_S", 1e-9)
    over = threading.Event()
    counts = [0, 0]

    def repeat() -> None:
        while not over.is_set():
            session.run(None, KNOWN)
            counts[0] += 1

    def bring() -> None:
        for _ in range(5):
            for feeds in SIZES:
                session.run(None, feeds)
                counts[1] += 1
        over.set()

    meet(session)
    with running(repeat), running(bring):
        assert over.wait(PATIENCE_S)
    assert counts[1] == 5 * len(SIZES)
    assert counts[0] >= len(SIZES)


def test_a_fault_in_a_slice_is_the_run_s_own(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (want,) = session.run(None, NEW)
    (known,) = session.run(None, KNOWN)
    monkeypatch.setattr(time_slicing, "SLICE_S", 1e-9)
    meet(session)
    with monkeypatch.context() as patch:
        real, calls = PreparedLaunch.enqueue, list[Any]()

        def enqueue(self: PreparedLaunch, queue: Any) -> Any:
            calls.append(None)
            if len(calls) == 2:
                raise DeviceError("the device refuses")
            return real(self, queue)

        patch.setattr(PreparedLaunch, "enqueue", enqueue)
        with pytest.raises(DeviceError, match="refuses"):
            session.run(None, NEW)
    for twin in session._lock.concurrent.executables:
        assert not twin.lock.locked()
    np.testing.assert_array_equal(session.run(None, KNOWN)[0], known)
    np.testing.assert_array_equal(session.run(None, NEW)[0], want)


def test_twins_go_when_threads_do_not_meet(session: opalite.InferenceSession) -> None:
    before = session.stats().bytes
    meet(session)
    (want,) = session.run(None, NEW)
    (twin,) = session._lock.concurrent.executables
    beside_bytes = session.stats().bytes
    assert beside_bytes["arena"] > before["arena"]
    assert beside_bytes["weights"] == before["weights"]
    gone = weakref.ref(twin.memory._layout)
    session._lock.concurrent._shared_until = 0.0
    session._lock.concurrent.evict_idle()
    assert not session._lock.is_shared
    assert session._lock.concurrent.executables == [twin], "others may come back soon"
    session._lock.concurrent.evict_idle(0.0)
    assert twin.is_released
    assert gone() is None
    assert session.stats().bytes == before
    assert session.replay() > 0
    np.testing.assert_array_equal(session.run(None, NEW)[0], want)


def test_one_thread_makes_no_replica(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("memory for nobody")

    monkeypatch.setattr(Executable, "make_replica", refuse)
    for feeds in (*SIZES, KNOWN, *SIZES, {"x": noise(1, 3, 50, 41)}):
        session.run(None, feeds)
    assert session.stats().concurrent_runs == 0


def test_without_memory_for_a_replica_runs_are_sequential(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> Any:
        raise opalite.errors.DeviceMemoryError("no room")

    (want,) = session.run(None, NEW)
    session.run(None, KNOWN)
    monkeypatch.setattr(Executable, "make_replica", refuse)
    meet(session)
    np.testing.assert_array_equal(session.run(None, NEW)[0], want)
    assert session.stats().concurrent_runs == 0


def test_replay_keeps_others_out(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for runs that go beside, and none begins before it is over."""
    monkeypatch.setattr(time_slicing, "SLICE_S", 1e-9)
    begun, go = threading.Event(), threading.Event()
    real = TimeSlicedQueue._run_slice

    def run_slice(self: TimeSlicedQueue, *args: Any) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        real(self, *args)

    meet(session)
    monkeypatch.setattr(TimeSlicedQueue, "_run_slice", run_slice)
    replayed = threading.Event()
    with running(lambda: session.run(None, NEW)):
        assert begun.wait(PATIENCE_S)
        with running(lambda: (session.replay(), replayed.set())):  # type: ignore[func-returns-value]
            assert not replayed.wait(0.05)
            go.set()
    assert replayed.is_set()
