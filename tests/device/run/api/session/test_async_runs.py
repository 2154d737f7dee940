"""Runs that nobody waits for: callbacks of run_async, and tasks of asyncio, as onnxruntime and Python have them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.run.api.session.session_runs import SessionRuns

from .....helpers.small_models import classifier, noise

MODEL = classifier().SerializeToString()
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def session() -> Iterator[opalite.InferenceSession]:
    with opalite.InferenceSession(MODEL) as session:
        session.run(None, {"x": noise(1, 3, 16, 16)})
        yield session


@pytest.fixture
def one_thread(session: opalite.InferenceSession) -> Iterator[threading.Event]:
    """The session's threads are busy until the event is set."""
    go = threading.Event()
    begun = threading.Barrier(session._thread_pool()._max_workers + 1)

    def wait() -> None:
        begun.wait(PATIENCE_S)
        go.wait(PATIENCE_S)

    for _ in range(session._thread_pool()._max_workers):
        session._thread_pool().submit(wait)
    begun.wait(PATIENCE_S)
    yield go
    go.set()


def test_many_tasks_do_not_block_the_loop(session: opalite.InferenceSession, one_thread: threading.Event) -> None:
    feeds = [noise(1, 3, 16, 16, seed=i) for i in range(60)]

    async def main() -> list[list[Any]]:
        tasks = [asyncio.create_task(session.arun(None, {"x": x})) for x in feeds]
        for _ in range(10):  # the loop goes round while no thread is free for any run
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        one_thread.set()
        return await asyncio.gather(*tasks)

    found = asyncio.run(main())
    for x, outputs in zip(feeds, found, strict=True):
        np.testing.assert_array_equal(outputs[0], session.run(None, {"x": x})[0])


def test_a_task_raises_what_run_raises(session: opalite.InferenceSession) -> None:
    async def both() -> list[Any]:
        wrong = session.arun(None, {"x": noise(1, 4, 16, 16)})
        right = session.arun(None, {"x": noise(1, 3, 16, 16)})
        return await asyncio.gather(wrong, right, return_exceptions=True)

    wrong, right = asyncio.run(both())
    assert isinstance(wrong, opalite.InputError)
    assert right[0].shape == session.run(None, {"x": noise(1, 3, 16, 16)})[0].shape
    with pytest.raises(opalite.MissingInputError, match="x"):
        asyncio.run(session.arun(None, {}))
    with pytest.raises(opalite.InputError, match="no output is named 'z'"):
        asyncio.run(session.arun(["z"], {"x": noise(1, 3, 16, 16)}))


def test_a_task_cancelled_before_its_run_never_runs(
    session: opalite.InferenceSession, one_thread: threading.Event
) -> None:
    before = session.stats().runs

    async def main() -> None:
        task = asyncio.create_task(session.arun(None, {"x": noise(1, 3, 16, 16)}))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await task
        one_thread.set()
        await session.arun(None, {"x": noise(1, 3, 16, 16)})

    asyncio.run(main())
    assert session.stats().runs == before + 1


@pytest.mark.parametrize("own", [False, True])
def test_a_task_cancelled_under_way_calls_its_run_off(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    begun, go = threading.Event(), threading.Event()
    ended: list[bool] = []

    def run(names: Any, feed: Any, options: opalite.RunOptions) -> list[Any]:
        begun.set()
        assert go.wait(PATIENCE_S)
        ended.append(options.terminate)
        return []

    monkeypatch.setattr(session, "run", run)
    given = opalite.RunOptions() if own else None

    async def main() -> None:
        task = asyncio.create_task(session.arun(None, {"x": noise(1, 3, 16, 16)}, given))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    asyncio.run(main())
    session._thread_pool().submit(lambda: None).result(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while not ended and time.monotonic() < end:
        time.sleep(0.01)
    assert ended == [not own], "options of the caller may serve other runs, and stay as they are"


def test_context_variables_reach_the_run(session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    name = contextvars.ContextVar("name", default="none")
    monkeypatch.setattr(session, "run", lambda *_: [name.get()])

    async def main() -> list[Any]:
        name.set("task")
        return await session.arun(None, {"x": noise(1, 3, 16, 16)})

    assert asyncio.run(main()) == ["task"]


def test_callbacks_run_concurrently_in_few_threads(session: opalite.InferenceSession) -> None:
    done = threading.Semaphore(0)
    found: dict[int, Any] = {}
    names: set[str] = set()

    def callback(outputs: list[Any], i: int, error: str) -> None:
        found[i] = (outputs[0], error)
        names.add(threading.current_thread().name)
        done.release()

    feeds = [noise(1, 3, 16, 16, seed=i) for i in range(100)]
    for i, x in enumerate(feeds):
        session.run_async(None, {"x": x}, callback, i)
    for _ in feeds:
        assert done.acquire(timeout=PATIENCE_S)
    for i, x in enumerate(feeds):
        np.testing.assert_array_equal(found[i][0], session.run(None, {"x": x})[0])
        assert found[i][1] == ""
    assert 1 <= len(names) <= 8


def test_errors_of_a_callback_go_to_the_excepthook(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda given: told.append(given.exc_value))
    done = threading.Event()

    def fail(outputs: list[Any], user_data: Any, error: str) -> None:
        raise ZeroDivisionError

    session.run_async(None, {"x": noise(1, 3, 16, 16)}, fail)
    session._thread_pool().submit(lambda: None).result(PATIENCE_S)
    session.run_async(None, {"x": noise(1, 3, 16, 16)}, lambda *_: done.set())
    assert done.wait(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while not told and time.monotonic() < end:
        time.sleep(0.01)
    assert [type(e) for e in told] == [ZeroDivisionError]


def test_threads_end_with_the_session() -> None:
    session = opalite.InferenceSession(MODEL)
    asyncio.run(session.arun(None, {"x": noise(1, 3, 16, 16)}))
    threads = list(session._thread_pool()._threads)
    session.close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert SessionRuns._threads is None
    assert len(asyncio.run(session.arun(None, {"x": noise(1, 3, 16, 16)}))) == 1
    session.close()
