"""Sizes that come back, far from those of their plan, get a plan of their own in the background, if it is faster."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.run.execute.compile_queue import THREAD_NAME
from opalite.run.execute.executable import Executable
from opalite.run.model import concurrent_runs
from opalite.run.model.background import respecialize, respecialize_policy
from opalite.run.model.background.background_compile import CompileJob, Task
from opalite.run.model.background.respecialize import Respecializer
from opalite.run.model.background.respecialize_policy import MOST, RETURNS
from opalite.run.model.onnx_model import OnnxModel

from .....helpers.onnx_text import by_onnxruntime
from .....helpers.small_models import make_model, noise, port

PATIENCE_S = 120.0
SMALL, LARGE = noise(1, 8, 6, 6), noise(1, 8, 40, 44)
Open = Callable[..., opalite.InferenceSession]
Share = Callable[[opalite.InferenceSession], None]


def convolutions() -> Any:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    constants = {"w1": noise(16, 8, 3, 3), "w2": noise(24, 16, 3, 3)}
    return make_model(nodes, [port("x", ["n", 8, "h", "w"])], [port("y", None)], constants)


@pytest.fixture
def open_session(rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a session with plans and background builds, for which a new plan always has other kernels."""
    monkeypatch.setenv("OPALITE_TIERS", "1")
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    monkeypatch.setattr(type(rt.programs), "may_build_in_background", True)
    monkeypatch.setattr(respecialize, "same_launches", lambda a, b: False)

    def open_(model: Any = None) -> opalite.InferenceSession:
        source = (convolutions() if model is None else model).SerializeToString()
        return opalite.InferenceSession(source, device=rt.info.id, precision="fp32")

    return open_


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the new and the present plan that count, after both have run."""
    found = [1.0, 2.0]
    real = Respecializer._measure

    def measure(self: Respecializer, *args: Any) -> tuple[float, float]:
        measured = real(self, *args)
        assert min(measured) > 0
        return found[0], found[1]

    monkeypatch.setattr(Respecializer, "_measure", measure)
    return found


def come_back(session: opalite.InferenceSession, x: Any, times: int = RETURNS) -> Any:
    """The output after some runs, each checked."""
    (want,) = by_onnxruntime(convolutions(), {"x": x})
    for _ in range(times):
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return got


def made_for(session: opalite.InferenceSession) -> tuple[int, ...]:
    """The sizes that the executable of the last run was made for."""
    steady = session._dispatcher.route
    executable = session._dispatcher.run_record.executables[0] if steady is None else steady.executable
    caches = session._model.caches
    return next(c.made_for for cache in caches for c in cache.all if c.executable is executable)


def test_a_faster_plan_serves_the_sizes_near_it(open_session: Open, times: list[float]) -> None:
    session = open_session()
    come_back(session, SMALL, 2)
    assert session.settle(PATIENCE_S)
    come_back(session, LARGE, RETURNS - 1)
    assert session.settle(PATIENCE_S)
    assert session.stats().respecialized_plans == 0, "made for sizes that may never come again"
    come_back(session, LARGE, 3)
    assert session.settle(PATIENCE_S)
    built = session.stats().programs_built
    come_back(session, LARGE, 3)
    assert made_for(session) == (40, 44)
    note = str(session.explain({"x": LARGE}))
    assert "made in the background for sizes that came back" in note
    come_back(session, noise(1, 8, 60, 50))
    assert made_for(session) == (40, 44)
    come_back(session, SMALL)
    assert made_for(session) == (6, 6)
    note = str(session.explain({"x": noise(1, 8, 7, 5)}))
    assert "this plan was made for s0=6, s1=6, and serves others" in note
    stats = session.stats()
    assert (stats.respecialized_plans, stats.programs_built, stats.pending, stats.faults) == (1, built, 0, ())


def test_a_plan_that_is_no_faster_is_dropped(open_session: Open, times: list[float]) -> None:
    times[:] = 0.99, 1.0
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)
    come_back(session, LARGE)
    assert session.settle(PATIENCE_S)
    come_back(session, LARGE, 2 * RETURNS)
    assert session.settle(PATIENCE_S)
    assert made_for(session) == (6, 6)
    assert session.stats().respecialized_plans == 0
    note = "one made in the background for s0=40, s1=44 is no faster: 990 ms a run, the other 1e+03"
    assert note in str(session.explain({"x": LARGE}))
    assert isinstance(session._model, OnnxModel)
    folder = session._model.store.folder
    assert len(list(folder.glob("*.opal"))) == 1
    made = session.stats().plans_made
    again = open_session()  # which plans nothing: that was in vain
    come_back(again, SMALL)
    come_back(again, LARGE, 2 * RETURNS)
    assert again.settle(PATIENCE_S)
    assert made > 1
    assert again.stats().plans_made == 0


def test_the_next_process_takes_the_nearest_plan(open_session: Open, times: list[float]) -> None:
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)
    come_back(session, LARGE)
    assert session.settle(PATIENCE_S)
    assert session.stats().respecialized_plans == 1
    for first, then in ((noise(1, 8, 7, 6), noise(1, 8, 44, 50)), (noise(1, 8, 44, 50), noise(1, 8, 7, 6))):
        again = open_session()
        come_back(again, first)
        assert made_for(again) == ((6, 6) if first.shape[2] == 7 else (40, 44))
        come_back(again, then, 2 * RETURNS)
        assert again.settle(PATIENCE_S)
        assert made_for(again) == ((6, 6) if then.shape[2] == 7 else (40, 44))
        stats = again.stats()
        assert (stats.plans_made, stats.plans_loaded, stats.programs_built) == (0, 2, 0)


def test_a_kept_plan_gets_a_nearer_one_beside_it(open_session: Open, times: list[float]) -> None:
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)
    again = open_session()
    come_back(again, LARGE)
    assert made_for(again) == (6, 6)
    assert again.settle(PATIENCE_S)
    come_back(again, LARGE)
    assert made_for(again) == (40, 44)
    come_back(again, SMALL)
    assert made_for(again) == (6, 6)
    assert isinstance(again._model, OnnxModel)
    assert not again._model.is_imported, "new sizes would be planned anew"
    stats = again.stats()
    assert (stats.respecialized_plans, stats.plans_made, stats.programs_built) == (1, 1, 0)
    last = open_session()
    come_back(last, LARGE, 1)
    assert made_for(last) == (40, 44)


def test_the_same_kernels_are_not_built_twice(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respecialize, "same_launches", lambda a, b: True)
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)
    come_back(session, LARGE, 2 * RETURNS)
    assert session.settle(PATIENCE_S)
    assert made_for(session) == (6, 6)
    assert "one made in the background for s0=40, s1=44 has the same kernels" in str(session.explain({"x": LARGE}))


def test_a_failure_changes_nothing(
    open_session: Open, times: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)

    def fail(*args: Any, **options: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Executable, "__init__", fail)
        come_back(session, LARGE)
        assert session.settle(PATIENCE_S)
    come_back(session, LARGE)
    assert made_for(session) == (6, 6)
    assert session.stats().faults == ()
    assert "cannot be made (MemoryError: no room)" in str(session.explain({"x": LARGE}))
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a job begins."""
    found = threading.Event()
    real = Respecializer._begin

    def begin(self: Respecializer) -> Any:
        found.set()
        return real(self)

    monkeypatch.setattr(Respecializer, "_begin", begin)
    return found


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Share:
    """Makes threads of a session count as waiting for each other from now on."""

    def share(session: opalite.InferenceSession) -> None:
        monkeypatch.setattr(concurrent_runs, "SHARED_S", 1e6)
        session._lock.concurrent.note_contention()

    return share


def open_shared(open_session: Open, share: Share) -> opalite.InferenceSession:
    """A session whose threads wait for each other, with large sizes that came back since a plan was made for small
    ones.
    """
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)
    share(session)
    come_back(session, LARGE)
    return session


def test_it_is_delayed_while_threads_wait_for_each_other(
    open_session: Open, times: list[float], begun: threading.Event, share: Share
) -> None:
    session = open_shared(open_session, share)
    assert not begun.wait(0.3)
    assert len(session._background.jobs) == 1
    made = CompileJob(lambda: Task(()))
    session._background.submit(made)
    assert made.wait(PATIENCE_S), "others go first"
    assert not begun.is_set()
    session._lock.is_shared = False
    assert begun.wait(PATIENCE_S)
    assert session.settle(PATIENCE_S)
    assert session.stats().respecialized_plans == 1


def test_settle_ends_the_delay(
    open_session: Open, times: list[float], share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respecialize, "MAX_DELAY_S", 1e6)
    session = open_shared(open_session, share)
    assert session.settle(PATIENCE_S)
    assert session.stats().respecialized_plans == 1


def test_the_delay_is_limited(
    open_session: Open, times: list[float], begun: threading.Event, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respecialize, "MAX_DELAY_S", 0.2)
    with open_shared(open_session, share):
        assert begun.wait(PATIENCE_S)


def compile_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_a_deleted_session_drops_delayed_jobs(
    open_session: Open, begun: threading.Event, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respecialize, "MAX_DELAY_S", 1e6)
    session = open_shared(open_session, share)
    threads, model = compile_threads(), weakref.ref(session._model)
    assert threads
    del session
    gc.collect()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    gc.collect()
    assert not begun.is_set()
    assert model() is None


def test_random_sizes_do_not_plan_without_end(
    open_session: Open, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respecialize_policy, "ALIKE", 4)
    session = open_session()
    come_back(session, SMALL)
    assert session.settle(PATIENCE_S)
    rng = np.random.default_rng(0)
    for _ in range(40):
        come_back(session, noise(1, 8, *(2 ** rng.uniform(2, 7.5, 2)).astype(int)), 2)
    assert session.settle(PATIENCE_S)
    assert 1 <= session.stats().respecialized_plans <= MOST


def test_sizes_of_a_later_part_of_a_model(open_session: Open, times: list[float]) -> None:
    """The number of rows depends on data, so this part's size is not an input's."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Transpose", ["at"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["reals"], to=1),
        helper.make_node("MatMul", ["reals", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    constants = {"w": noise(2, 32), "v": noise(32, 24)}
    model = make_model(nodes, [port("x", ["n", 64])], [port("y", None)], constants)
    session = open_session(model)

    def run(rows: int, times: int) -> None:
        x = np.zeros((40, 64), np.float32)
        x.reshape(-1)[:rows] = 1
        (want,) = by_onnxruntime(model, {"x": x})
        for _ in range(times):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-3)

    run(130, 1)  # more than those that kernels for few rows take
    run(131, 3)  # that they differ shows that they are open
    assert session.settle(PATIENCE_S)
    run(2000, RETURNS)
    assert session.settle(PATIENCE_S)
    run(2000, 2)
    assert session.stats().respecialized_plans == 1
    assert "made in the background for sizes" in str(session.explain({"x": np.ones((40, 64), np.float32)}))
