"""InferQueue: every request once and its own answer, in order and as completed, bounded, whatever fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.runtime import Runtime
from opalite.run.queue.direct_choice import DirectChoice

from ....helpers.small_models import classifier, noise

MODEL = classifier().SerializeToString()
PATIENCE_S = 60.0
ROOT = Path(__file__).parents[4]
FEEDS = [{"x": noise(1, 3, 16, 16, seed=i)} for i in range(40)]
WRONG = {"x": noise(1, 4, 16, 16)}


@pytest.fixture(scope="module")
def session() -> Iterator[opalite.InferenceSession]:
    with opalite.InferenceSession(MODEL) as session:
        yield session


@pytest.fixture(scope="module")
def expected(session: opalite.InferenceSession) -> list[Any]:
    return [session.run(None, feeds)[0] for feeds in FEEDS]


def check(found: dict[int, Any], expected: list[Any]) -> None:
    assert sorted(found) == list(range(len(expected)))
    for i, want in enumerate(expected):
        np.testing.assert_allclose(found[i], want, rtol=1e-6)


class Held:
    """The queue's workers wait before each run until there is leave."""

    def __init__(self, queue: opalite.InferQueue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leave = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        for worker in queue._workers:
            monkeypatch.setattr(worker, "run", self.wrap(worker.run))

    def wrap(self, real: Any) -> Any:
        def run(*arguments: Any) -> Any:
            self.begun.release()
            assert self.leave.acquire(timeout=PATIENCE_S)
            return real(*arguments)

        return run


def test_a_callback_gets_every_job_with_its_userdata(expected: list[Any]) -> None:
    found: dict[int, Any] = {}
    with opalite.InferQueue(MODEL, jobs=3) as queue:
        queue.set_callback(lambda job, i: found.__setitem__(i, job.result()[0]))
        for i, feeds in enumerate(FEEDS):
            queue.start_async(feeds, i)
        queue.wait_all()
        check(found, expected)
        assert len(queue) == len(queue.devices) == (1 if queue.devices[0].kind == "cpu" else 2)


def test_results_in_order_and_as_completed(session: opalite.InferenceSession, expected: list[Any]) -> None:
    with opalite.InferQueue(session, workers=3) as queue:
        jobs = list(queue.map(iter(FEEDS)))
        assert [job.userdata for job in jobs] == list(range(len(FEEDS)))
        check({job.userdata: job.result()[0] for job in jobs}, expected)
        assert all(job.run_s > 0 and job.queued_s >= 0 and job.inputs is None for job in jobs)
        check({job.userdata: job.result()[0] for job in queue.as_completed(FEEDS)}, expected)
    assert session.run(None, FEEDS[0])[0].shape == expected[0].shape  # it is still open


def test_the_first_done_comes_first(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with opalite.InferQueue([session], workers=2, jobs=2) as queue:
        go = threading.Event()
        real = session.run

        def run(names: Any, feeds: Any) -> Any:
            assert feeds is not FEEDS[0] or go.wait(PATIENCE_S)
            return real(names, feeds)

        monkeypatch.setattr(session, "run", run)
        found = queue.as_completed(FEEDS[:3])
        assert next(found).userdata == 1
        assert next(found).userdata == 2
        go.set()
        assert next(found).userdata == 0
        assert next(found, None) is None


def test_no_more_than_jobs_are_accepted(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with opalite.InferQueue(session, workers=1, jobs=2) as queue:
        held = Held(queue, monkeypatch)
        queue.start_async(FEEDS[0])
        assert queue.is_ready()
        queue.start_async(FEEDS[1])
        assert not queue.is_ready()
        third = threading.Thread(target=queue.start_async, args=(FEEDS[2],))
        third.start()
        third.join(0.1)
        assert third.is_alive(), "the third request did not wait"
        held.leave.release()
        third.join(PATIENCE_S)
        assert not third.is_alive()
        held.leave.release(2)
        queue.wait_all()
        assert queue.is_ready()


def test_iterating_takes_no_more_inputs_than_jobs_ahead(session: opalite.InferenceSession) -> None:
    taken = 0

    def inputs() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for feeds in FEEDS:
            taken += 1
            yield feeds

    with opalite.InferQueue(session, jobs=4) as queue:
        for method in (queue.map, queue.as_completed):
            taken = 0
            found = method(inputs())
            for given in range(1, 11):
                next(found)
                assert taken <= given + 4
            found.close()  # type: ignore[attr-defined]
            queue.wait_all()


def test_a_failing_request_ends_nothing(session: opalite.InferenceSession, expected: list[Any]) -> None:
    feeds = [FEEDS[0], WRONG, *FEEDS[1:]]
    with opalite.InferQueue(session) as queue:
        jobs = list(queue.map(feeds))
        assert isinstance(jobs[1].exception(), opalite.InputError)
        check({i: job.result()[0] for i, job in enumerate(jobs[:1] + jobs[2:])}, expected)
        queue.wait_all()  # whoever iterates was told
        queue.start_async(WRONG)
        queue.start_async(FEEDS[0])
        with pytest.raises(opalite.InputError, match="x"):
            queue.wait_all()
        queue.wait_all()  # of each failure once
        errors: list[Any] = []
        queue.set_callback(lambda job, _: errors.append(job.exception()))
        queue.start_async(WRONG)
        queue.wait_all()
        assert [type(e) for e in errors] == [opalite.InputError]


def test_what_a_callback_raises_is_raised_by_wait_all(session: opalite.InferenceSession) -> None:
    with opalite.InferQueue(session) as queue:
        queue.set_callback(lambda job, userdata: 1 // userdata)
        for i in (1, 0, 1):
            queue.start_async(FEEDS[0], i)
        with pytest.raises(ZeroDivisionError):
            queue.wait_all()
        assert queue.start_async(FEEDS[0], 1).result(PATIENCE_S)


def test_callbacks_may_ask_for_more(session: opalite.InferenceSession) -> None:
    found: list[int] = []
    with opalite.InferQueue(session, workers=1, jobs=1) as queue:

        def more(job: opalite.Job, left: int) -> None:
            found.append(left)
            for _ in range(2 if left else 0):
                queue.start_async(FEEDS[0], left - 1)

        queue.set_callback(more)
        queue.start_async(FEEDS[0], 3)
        queue.wait_all()
    assert sorted(found) == [0] * 8 + [1] * 4 + [2] * 2 + [3]


def test_the_caller_computes_direct_requests(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch, expected: list[Any]
) -> None:
    """But not those that it starts in a callback or awaits in asyncio."""
    threads: list[int] = []
    is_direct = True
    monkeypatch.setattr(DirectChoice, "decide", lambda *_: is_direct)
    with opalite.InferQueue(session, workers=1) as queue:
        real = queue._workers[0].run

        def run(*arguments: Any) -> Any:
            threads.append(threading.get_ident())
            return real(*arguments)

        monkeypatch.setattr(queue._workers[0], "run", run)
        job = queue.start_async(FEEDS[0])
        assert job.done()
        np.testing.assert_allclose(job.result()[0], expected[0], rtol=1e-6)
        asyncio.run(queue.arun(FEEDS[0]))
        is_direct = False
        queue.start_async(FEEDS[0]).result()
        queue.wait_all()
        assert [t == threading.get_ident() for t in threads] == [True, False, False]
        is_direct = True
        nested: list[Any] = []
        queue.set_callback(lambda job, i: nested.append(queue.start_async(FEEDS[1], i - 1)) if i else None)
        queue.start_async(FEEDS[0], 5)
        queue.wait_all()
        assert len(nested) == 5


def test_waits_end_after_their_time_out(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with opalite.InferQueue(session, jobs=1) as queue:
        held = Held(queue, monkeypatch)
        job = queue.start_async(FEEDS[0])
        assert held.begun.acquire(timeout=PATIENCE_S)
        with pytest.raises(TimeoutError, match="1 requests are unfinished"):
            queue.start_async(FEEDS[1], timeout=0.01)
        with pytest.raises(TimeoutError, match="1 requests"):
            queue.wait_all(timeout=0.01)
        held.leave.release(2)
        queue.wait_all(timeout=PATIENCE_S)
        assert job.done()
        assert queue.start_async(FEEDS[1]).index == 1


def test_an_interrupt_leaves_the_queue_usable(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch, expected: list[Any]
) -> None:
    with opalite.InferQueue(session, workers=1) as queue:
        real, calls = queue._workers[0].run, iter(range(100))

        def run(*arguments: Any) -> Any:
            if next(calls) == 0:
                raise KeyboardInterrupt
            return real(*arguments)

        monkeypatch.setattr(queue._workers[0], "run", run)
        monkeypatch.setattr(DirectChoice, "decide", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            queue.start_async(FEEDS[0]).result()
        with suppress(KeyboardInterrupt):
            queue.wait_all()
        check({job.userdata: job.result()[0] for job in queue.map(FEEDS)}, expected)


def test_requests_can_be_taken_back(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with opalite.InferQueue(session, workers=1, jobs=9) as queue:
        held = Held(queue, monkeypatch)
        first, second, third = (queue.start_async(feeds) for feeds in FEEDS[:3])
        assert held.begun.acquire(timeout=PATIENCE_S)
        assert second.cancel()
        assert not first.cancel()
        held.leave.release(2)
        queue.wait_all()
        assert first.result()
        assert third.result()
        assert second.cancelled()


def test_an_error_in_the_block_takes_back_what_has_not_begun(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[opalite.Job] = []

    def leave_by_error() -> None:
        with opalite.InferQueue(session, workers=1, jobs=9) as queue:
            held = Held(queue, monkeypatch)
            jobs.extend(queue.start_async(feeds) for feeds in FEEDS[:4])
            assert held.begun.acquire(timeout=PATIENCE_S)
            held.leave.release()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        leave_by_error()
    assert jobs[0].result()
    assert jobs[3].cancelled()


def test_a_closed_queue_has_done_what_it_accepted(session: opalite.InferenceSession) -> None:
    queue = opalite.InferQueue(session, jobs=20)
    jobs = [queue.start_async(feeds) for feeds in FEEDS[:20]]
    queue.close()
    assert all(job.done() and job.result() for job in jobs)
    with pytest.raises(opalite.InputError, match="closed"):
        queue.start_async(FEEDS[0])
    queue.close()


def test_tasks_of_asyncio(session: opalite.InferenceSession, expected: list[Any]) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(queue.arun(f) for f in [*FEEDS, WRONG]), return_exceptions=True)

    with opalite.InferQueue(session, jobs=1) as queue:
        *found, failed = asyncio.run(main())
        assert isinstance(failed, opalite.InputError)
        check({i: outputs[0] for i, outputs in enumerate(found)}, expected)
        queue.wait_all()


def test_several_sessions_share_the_work(expected: list[Any]) -> None:
    sessions = [opalite.InferenceSession(MODEL) for _ in range(2)]
    with opalite.InferQueue(sessions, workers=1) as queue:
        check({job.userdata: job.result()[0] for job in queue.map(FEEDS)}, expected)
    assert all(session.stats().runs >= 1 for session in sessions)
    for session in sessions:
        session.close()


def test_devices_are_named_or_all(expected: list[Any]) -> None:
    kind = find_device().info.kind
    count = 1 if kind == "cpu" else sum(d.kind == kind for d in opalite.devices())
    with opalite.InferQueue(MODEL, devices="all", workers=1) as queue:
        assert len(queue) == count
        for job in queue.map(FEEDS[:4]):
            np.testing.assert_allclose(job.result()[0], expected[job.userdata], rtol=1e-3, atol=1e-5)
    first = opalite.devices()[0]
    with opalite.InferQueue(MODEL, devices=[first.id], workers=2) as queue:
        assert queue.devices == [first, first]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"jobs": 0}, "jobs is a number of at least 1"),
        ({"workers": 1.5}, "workers is a number of at least 1"),
        ({"devices": []}, "each once"),
        ({"devices": ["cpu", "cpu"]}, "each once"),
        ({"precision": "fp33"}, "precision"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(opalite.OpaliteError, match=message):
        opalite.InferQueue(MODEL, **arguments)


def test_wrong_sessions_and_inputs_are_named(session: opalite.InferenceSession) -> None:
    with pytest.raises(opalite.InputError, match="open sessions have their devices"):
        opalite.InferQueue(session, processes=True)
    with pytest.raises(opalite.InputError, match="open sessions"):
        opalite.InferQueue([])
    with opalite.InferQueue(session) as queue:
        with pytest.raises(opalite.InputTypeError, match="dict of arrays"):
            queue.start_async([FEEDS[0]])  # type: ignore[arg-type]
        with pytest.raises(opalite.InputTypeError, match="function of"):
            queue.set_callback(3)  # type: ignore[arg-type]


TWO_DEVICES = """
import threading
import opalite
from tests.device.run.queue.test_infer_queue import FEEDS, MODEL, check

ids = [d.id for d in opalite.devices() if d.family == "pocl"]
assert len(ids) == 2, ids
with opalite.InferenceSession(MODEL, device=ids[0]) as session:
    expected = [session.run(None, feeds)[0] for feeds in FEEDS]
with opalite.InferQueue(MODEL, devices=ids) as queue:
    both = threading.Barrier(2)
    for worker in queue._workers:
        def run(names, feeds, real=worker.run, waits=[True]):
            if waits:
                waits.clear()
                both.wait(60)
            return real(names, feeds)
        worker.run = run
    check({job.userdata: job.result()[0] for job in queue.map(FEEDS)}, expected)
"""


def test_two_devices_share_the_work(rt: Runtime) -> None:
    """Each has a context of its own; neither begins its second request before the other its first."""
    if rt.info.platform != "Portable Computing Language":
        pytest.skip("only PoCL shows as many devices as it is asked for")
    environment = {k: v for k, v in os.environ.items() if k != "OPALITE_DEVICE"} | {"POCL_DEVICES": "pthread pthread"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT), *filter(None, sys.path)))
    done = subprocess.run([sys.executable, "-c", TWO_DEVICES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
