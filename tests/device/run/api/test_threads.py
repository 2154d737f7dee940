"""One session, several threads: what is compiled for one keeps no other waiting, and every answer is its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.importer.walk import import_segment
from opalite.run.execute.executable import Executable
from opalite.run.model.background.graph_compiler import Compiler

from ....helpers.onnx_text import by_onnxruntime
from ....helpers.small_models import classifier, make_model, noise, port
from ..model.test_segments import chosen_rows, expected

PATIENCE_S = 60.0  # for what takes milliseconds on a machine that is not busy
KNOWN = {"x": noise(1, 3, 16, 16)}
NEW = {"x": noise(2, 3, 24, 8)}


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """`owner.name` sets the first event and waits for the second before it does what it does."""
    begun, go = threading.Event(), threading.Event()
    real: Callable[..., Any] = getattr(owner, name)

    def wait(*args: Any, **options: Any) -> Any:
        begun.set()
        assert go.wait(PATIENCE_S)
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wait)
        yield begun, go
        go.set()


@contextmanager
def running(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """`work` in another thread, whose errors are this one's."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=guarded)
    thread.start()
    yield thread
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.fixture
def session(rt: Runtime) -> opalite.InferenceSession:
    return opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32")


@pytest.mark.parametrize(("owner", "name"), [(import_segment, "_import"), (Compiler, "plan"), (Runtime, "build_all")])
def test_a_known_size_waits_for_no_new_one(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """While another thread imports, plans or builds a new size."""
    (want,) = session.run(None, KNOWN)
    answers: list[Any] = []
    with (
        held(monkeypatch, owner, name) as (begun, go),
        running(lambda: answers.extend(session.run(None, NEW))),
    ):
        assert begun.wait(PATIENCE_S)
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, KNOWN)[0], want)  # by the short way
            np.testing.assert_array_equal(session.run(None, {"x": KNOWN["x"].tolist()})[0], want)  # by the usual one
        assert not answers
        go.set()
    np.testing.assert_allclose(answers[0], by_onnxruntime(classifier(), NEW)[0], rtol=1e-4, atol=1e-5)


def test_two_threads_with_the_same_new_size_compile_it_once(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run(None, KNOWN)
    made: list[Executable] = []
    real = Executable.__init__

    def count(self: Executable, *args: Any, **options: Any) -> None:
        made.append(self)
        real(self, *args, **options)

    monkeypatch.setattr(Executable, "__init__", count)
    answers: list[Any] = []
    with held(monkeypatch, Compiler, "plan") as (begun, go):
        threads = [threading.Thread(target=lambda: answers.extend(session.run(None, NEW))) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert begun.wait(PATIENCE_S)
        go.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len(made) == 1
    assert len(answers) == 3
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_alternating_sizes_take_the_fast_path(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = [session.run(None, feeds)[0] for feeds in (KNOWN, NEW)]

    def refuse(*args: Any) -> Any:
        raise AssertionError("a run of a known size looked at the model")

    monkeypatch.setattr(session, "_execute", refuse)
    for _ in range(3):
        for feeds, want in zip((KNOWN, NEW), wants, strict=True):
            np.testing.assert_array_equal(session.run(None, feeds)[0], want)


def test_a_closed_session_forgets_what_was_under_way(
    session: opalite.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run(None, KNOWN)
    answers: list[Any] = []
    with (
        held(monkeypatch, Compiler, "plan") as (begun, go),
        running(lambda: answers.extend(session.run(None, NEW))),
    ):
        assert begun.wait(PATIENCE_S)
        session.close()  # waits for nobody
        go.set()
    np.testing.assert_allclose(answers[0], by_onnxruntime(classifier(), NEW)[0], rtol=1e-4, atol=1e-5)
    assert session._dispatcher.route is None
    assert not session._dispatcher.run_record.executables


def test_values_between_segments_outlast_another_thread_s_run(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first segment's memory is written again, by the same segment, while the second is compiled."""
    monkeypatch.setenv("OPALITE_SYMBOLS", "0")  # another count is planned anew
    session = opalite.InferenceSession(chosen_rows().SerializeToString(), device=rt.info.id, precision="fp32")
    few, many = noise(300, 24, seed=1), noise(300, 24, seed=2)
    session.run(None, {"x": few})
    assert (expected(chosen_rows(), few).shape) != expected(chosen_rows(), many).shape, "else nothing is compiled"
    answers: list[Any] = []
    with (
        held(monkeypatch, Compiler, "plan") as (begun, go),
        running(lambda: answers.extend(session.run(None, {"x": many}))),
    ):
        assert begun.wait(PATIENCE_S)
        (y,) = session.run(None, {"x": few})
        np.testing.assert_allclose(y, expected(chosen_rows(), few), rtol=1e-3, atol=1e-3)
        go.set()
    np.testing.assert_allclose(answers[0], expected(chosen_rows(), many), rtol=1e-3, atol=1e-3)


def test_a_failed_run_releases_its_memory(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_SYMBOLS", "0")  # another count is planned anew
    session = opalite.InferenceSession(chosen_rows().SerializeToString(), device=rt.info.id, precision="fp32")
    session.run(None, {"x": noise(300, 24, seed=1)})

    def fail(*args: Any, **options: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Compiler, "plan", fail)
        with pytest.raises(opalite.errors.DeviceMemoryError, match="no room"):
            session.run(None, {"x": noise(300, 24, seed=2)})
    assert not session._lock.pending
    x = noise(300, 24, seed=3)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(chosen_rows(), x), rtol=1e-3, atol=1e-3)


def test_many_threads_and_sizes(rt: Runtime) -> None:
    """Answers are those of one thread, whatever else is run meanwhile."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    weights = {"w": noise(4, 3, 3, 3, seed=9)}
    model = make_model(nodes, [port("x", ("N", 3, "H", "W"))], [port("y", None)], weights)
    source = model.SerializeToString()
    feeds = [{"x": noise(1, 3, 6 + i, 9, seed=i)} for i in range(6)]
    alone = opalite.InferenceSession(source, device=rt.info.id, precision="fp32")
    wants = [alone.run(None, f)[0] for f in feeds]
    session = opalite.InferenceSession(source, device=rt.info.id, precision="fp32")
    faults: list[str] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(30):
            i = int(random.integers(len(feeds)))
            if not np.array_equal(session.run(None, feeds[i])[0], wants[i]):
                faults.append(f"size {i} in thread {number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not faults
