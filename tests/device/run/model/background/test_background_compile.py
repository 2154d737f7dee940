"""Two tiers: first runs use generic programs, and optimized ones are built in the background and replace them.

Longer than 400 lines: one mechanism, whose fixtures all of its tests share.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.cl.programs.program_cache import ProgramCache
from opalite.cl.runtime import Runtime
from opalite.errors import BuildError, DeviceMemoryError, InputError, PlacementError
from opalite.ir.constants.lazy_array import LazyArray
from opalite.plan.generic_programs import generic_programs
from opalite.plan.planner import Planned
from opalite.run.execute.compile_queue import THREAD_NAME, compile_queue
from opalite.run.execute.executable import Executable
from opalite.run.execute.strategies.megakernel_builder import supports_megakernel
from opalite.run.model.background import background_compile as background
from opalite.run.model.background import graph_compiler, plan_graph
from opalite.run.model.background.background_compile import (
    SPARE_IDLE_S,
    SPARE_LATEST_S,
    BackgroundCompiler,
    SpareCompileJob,
)
from opalite.run.model.background.graph_compiler import Compiler
from opalite.run.model.plans.plan_files import PlanFiles
from opalite.run.report.session_stats import SessionStats

from .....helpers.onnx_text import by_onnxruntime
from .....helpers.small_models import classifier, make_model, noise, port

PATIENCE_S = 120.0
X = {"x": noise(1, 3, 16, 16)}
WIDE = {"x": noise(1, 3, 16, 40)}
Open = Callable[..., opalite.InferenceSession]


def close_to(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.fixture
def lacking(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Makes optimized programs count as missing and generic ones as built: [whether it does]."""
    monkeypatch.setenv("OPALITE_TIERS", "1")
    monkeypatch.setattr(type(rt.programs), "may_build_in_background", True)
    lacks = [True]
    generic: set[Any] = set()
    real_plan = Compiler.plan_generic
    real_missing = ProgramCache.missing

    def plan_generic(self: Compiler, *args: Any) -> Any:
        planned = real_plan(self, *args)
        generic.update((s.text, s.options) for s in planned.program.sources)
        return planned

    def missing(self: ProgramCache, specs: Any) -> Any:
        if not lacks[0]:
            return real_missing(self, specs)
        return [s for s in specs if s[:2] not in generic]

    monkeypatch.setattr(Compiler, "plan_generic", plan_generic)
    monkeypatch.setattr(ProgramCache, "missing", missing)
    return lacks


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Background builds finish when this is set."""
    go = threading.Event()
    real = ProgramCache.build_in_background

    def wait(self: ProgramCache, specs: Any, stop: Callable[[], bool], *args: Any, **options: Any) -> None:
        while not go.wait(0.01):
            if stop():
                return
        real(self, specs, stop, *args, **options)

    monkeypatch.setattr(ProgramCache, "build_in_background", wait)
    return go


@pytest.fixture
def open_session(rt: Runtime, lacking: list[bool]) -> Open:
    def open_(model: Any = None, **options: Any) -> opalite.InferenceSession:
        source = (classifier() if model is None else model).SerializeToString()
        return opalite.InferenceSession(source, **{"device": rt.info.id, "precision": "fp32", **options})

    return open_


def test_optimized_programs_replace_generic_ones(open_session: Open, held: threading.Event) -> None:
    session = open_session()
    want = by_onnxruntime(classifier(), X)[0]
    for _ in range(3):
        close_to(session.run(None, X)[0], want)
        assert session.last_timing.tier == "generic"
    assert "while those made for this model are built" in session.explain().tier
    stats = session.stats()
    assert (stats.tier, stats.pending, stats.swaps) == ("generic", 1, 0)
    assert not session.settle(0.05)
    first = weakref.ref(session._dispatcher.run_record.executables[0])
    held.set()
    assert session.settle(PATIENCE_S)
    gc.collect()
    assert first() is None, "the generic executable and its weights are still referenced"
    close_to(session.run(None, X)[0], want)
    assert session.last_timing.tier == "optimized"
    assert session.explain().tier.startswith("tier: optimized")
    stats = session.stats()
    assert stats.runs_by_tier == {"generic": 3, "optimized": 1}
    assert (stats.tier, stats.pending, stats.swaps, stats.faults) == ("optimized", 0, 1, ())


def test_a_known_size_waits_for_no_run_by_generic_programs(
    open_session: Open, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run by generic programs takes several times as long as one of the known size."""
    monkeypatch.setenv("OPALITE_SYMBOLS", "0")  # another size needs programs of its own
    session = open_session()
    session.run(None, X)
    held.set()
    assert session.settle(PATIENCE_S)
    (want,) = session.run(None, X)
    held.clear()
    begun, go = threading.Event(), threading.Event()
    real = Executable.run

    def run(self: Executable, *args: Any, **options: Any) -> Any:
        if self.tier == "generic":
            begun.set()
            assert go.wait(PATIENCE_S)
        return real(self, *args, **options)

    monkeypatch.setattr(Executable, "run", run)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(session.run(None, WIDE)[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE_S)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, X)[0], want)
        np.testing.assert_array_equal(session.run(None, {"x": X["x"].tolist()})[0], want)
        assert session.last_timing.tier == "optimized"
    assert not answers
    go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(answers) == 2
    for answer in answers:
        close_to(answer, by_onnxruntime(classifier(), WIDE)[0])


def wide_model(path: Path) -> Path:
    """A product with a matrix of 1 MB, which stays in the file until it is packed."""
    weight = noise(512, 512, seed=3)
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        [port("x", (4, 512))],
        [port("y", (4, 512))],
        {"w": weight},
    )
    onnx.save(model, path)
    return path


def open_wide(rt: Runtime, folder: Path, monkeypatch: pytest.MonkeyPatch) -> opalite.InferenceSession:
    """A session of `wide_model`, whose matrix is large enough for the generic executable to be released first."""
    monkeypatch.setattr(background, "MIN_RELEASED_BYTES", 1)
    return opalite.InferenceSession(wide_model(folder / "wide.onnx"), device=rt.info.id, precision="fp32")


def test_generic_weights_are_freed_before_optimized_ones_are_made(
    rt: Runtime, lacking: list[bool], held: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in between waits for the optimized executable."""
    session = open_wide(rt, tmp_path, monkeypatch)
    x = {"x": noise(4, 512)}
    (want,) = session.run(None, x)
    assert session.last_timing.tier == "generic"
    (generic,) = session._dispatcher.run_record.executables
    begun, go = threading.Event(), threading.Event()
    real = Planned.load_weights
    late: list[int] = []

    def take(self: Planned, *each: Any) -> None:
        late.extend(w.nbytes for w in self.program.weights.values() if isinstance(w, LazyArray))
        assert generic.is_released
        assert not generic.memory.weight_bytes
        begun.set()
        assert go.wait(PATIENCE_S)
        real(self, *each)

    monkeypatch.setattr(Planned, "load_weights", take)
    held.set()
    assert begun.wait(PATIENCE_S)
    if not late and not rt.info.is_cpu:
        go.set()
        pytest.skip("the optimized kernels use the matrix as the model has it")
    assert sum(late) >= 1 << 20, "the packed matrix is in memory at the same time as the generic one"
    assert session.stats().bytes["weights"] == 0
    assert "another executable is taking the place" in str(session.explain())
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(session.run(None, x)[0]))
    thread.start()
    time.sleep(0.05)
    assert not answers
    go.set()
    thread.join(PATIENCE_S)
    close_to(answers[0], want)
    assert session.last_timing.tier == "optimized"
    assert session.settle(PATIENCE_S)
    assert session.stats().swaps == 1
    assert session.replay() > 0


def test_no_run_waits_for_the_plan_to_be_kept(
    rt: Runtime, lacking: list[bool], held: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is stored when it is planned. Writing large weights takes longer than making them ready."""
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    session = open_wide(rt, tmp_path, monkeypatch)
    x = {"x": noise(4, 512)}
    (want,) = session.run(None, x)
    begun, go = threading.Event(), threading.Event()
    real = PlanFiles.store
    kept: list[int] = []

    def keep(self: PlanFiles, path: Path, bundle: Any) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        kept.extend(sum(w.nbytes for w in v.stored.weights.values()) for v in bundle.variants)
        real(self, path, bundle)

    monkeypatch.setattr(PlanFiles, "store", keep)
    held.set()
    assert begun.wait(PATIENCE_S)
    close_to(session.run(None, x)[0], want)
    assert session.last_timing.tier == "generic"
    go.set()
    assert session.settle(PATIENCE_S)
    close_to(session.run(None, x)[0], want)
    assert session.last_timing.tier == "optimized"
    assert len(kept) == 1
    assert kept[0] >= 1 << 20, "the plan has lost its weights"
    lacking[0] = False
    again = opalite.InferenceSession(tmp_path / "wide.onnx", device=rt.info.id, precision="fp32")
    close_to(again.run(None, x)[0], want)
    assert (again.stats().plans_made, again.stats().plans_loaded) == (0, 1)


def test_a_session_goes_on_if_nothing_replaces_the_released_executable(
    rt: Runtime, lacking: list[bool], held: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_wide(rt, tmp_path, monkeypatch)
    x = {"x": noise(4, 512)}
    (want,) = session.run(None, x)
    real = Planned.load_weights
    with monkeypatch.context() as patch:

        def fail(self: Planned, *each: Any) -> None:
            raise DeviceMemoryError("no room")

        patch.setattr(Planned, "load_weights", fail)
        held.set()
        assert session.settle(PATIENCE_S)
    assert Planned.load_weights is real
    assert session.stats().faults
    with pytest.raises(InputError, match="run the model again"):
        session.replay()
    close_to(session.run(None, x)[0], want)
    assert session.last_timing.tier == "optimized"  # waited for, as without tiers


def test_the_next_model_finds_every_generic_program(
    open_session: Open, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generic programs that this model does not need are built in the background, after its optimized ones."""
    asked: list[set[Any]] = []
    real = ProgramCache.build_in_background

    def record(self: ProgramCache, specs: Any, *args: Any, **options: Any) -> None:
        asked.append({spec[:2] for spec in specs})
        real(self, specs, *args, **options)

    monkeypatch.setattr(ProgramCache, "build_in_background", record)
    session = open_session()
    session.run(None, X)
    sources = session._dispatcher.run_record.executables[0].program.sources
    assert session.settle(PATIENCE_S)
    known = {(s.text, s.options) for s in generic_programs(rt.info)}
    assert len(asked) == 2
    assert not asked[0] & known
    assert asked[1] == known - {(s.text, s.options) for s in sources}


def test_a_megakernel_is_linked_while_programs_are_built_if_the_model_runs_often(
    open_session: Open, lacking: list[bool], held: threading.Event, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "megakernel")
    if not supports_megakernel(rt):
        pytest.skip("launches stay apart here")
    linked: list[Any] = []
    monkeypatch.setattr(ProgramCache, "link_in_background", lambda self, parts, stop: linked.append(list(parts)))
    session = open_session()
    for _ in range(background.WORTH_RUNS):
        assert not linked
        session.run(None, X)
        assert session.last_timing.tier == "generic"
    end = time.monotonic() + PATIENCE_S
    while not linked and time.monotonic() < end:
        time.sleep(0.01)
    held.set()
    assert session.settle(PATIENCE_S)
    session.run(None, X)
    assert session.last_timing.tier == "optimized"
    assert linked == [session._dispatcher.run_record.executables[0].current.selector.builder.plan()]


@pytest.mark.parametrize("size", ["small", "large", "of large weights"])
def test_a_large_graph_is_planned_for_optimized_programs_in_the_background(
    open_session: Open, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    """No caller waits for the optimized plan of a large graph, which takes longest. For a small graph the plan shows
    whether anything is missing. Large weights, which planning reads, are planned before the generic executable has its
    own.
    """
    planned_by: list[str] = []
    real = Compiler.plan

    def record(self: Compiler, *args: Any, **options: Any) -> Any:
        planned_by.append(threading.current_thread().name)
        return real(self, *args, **options)

    monkeypatch.setattr(Compiler, "plan", record)
    monkeypatch.setattr(graph_compiler, "MIN_NODES_PLANNED_LATER", 1 if size == "large" else 10**6)
    if size == "of large weights":
        monkeypatch.setattr(graph_compiler, "MIN_NODES_PLANNED_LATER", 1)
        monkeypatch.setattr(graph_compiler, "MIN_RELEASED_BYTES", 1)
    session = open_session()
    want = by_onnxruntime(classifier(), X)[0]
    close_to(session.run(None, X)[0], want)
    assert session.last_timing.tier == "generic"
    assert session.settle(PATIENCE_S)
    close_to(session.run(None, X)[0], want)
    assert session.last_timing.tier == "optimized"
    assert planned_by == [THREAD_NAME if size == "large" else threading.current_thread().name]


def test_a_plan_that_fails_in_the_background_leaves_the_session_running(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Compiler, *args: Any, **options: Any) -> Any:
        raise PlacementError("no kernel takes it")

    monkeypatch.setattr(Compiler, "plan", fail)
    monkeypatch.setattr(graph_compiler, "MIN_NODES_PLANNED_LATER", 1)
    session = open_session()
    for _ in range(2):
        close_to(session.run(None, X)[0], by_onnxruntime(classifier(), X)[0])
        assert session.settle(PATIENCE_S)
    assert session.last_timing.tier == "generic"
    assert session.stats().faults == ("no kernel takes it",)


def test_halves_are_never_computed_by_generic_programs(open_session: Open, lacking: list[bool]) -> None:
    session = open_session(precision="fp16")
    session.run(None, X)
    assert session.last_timing.tier == "optimized"


def test_a_new_size_builds_nothing_on_the_caller_s_thread(
    open_session: Open, held: threading.Event, rt: Runtime, lacking: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    session.run(None, X)
    built = session.stats().programs_built
    session.run(None, WIDE)
    assert session.last_timing.tier == "generic"
    assert session.stats().programs_built == built
    assert session.stats().sizes == 2
    held.set()
    assert session.settle(PATIENCE_S)
    for feeds in (X, WIDE, X):
        close_to(session.run(None, feeds)[0], by_onnxruntime(classifier(), feeds)[0])
        assert session.last_timing.tier == "optimized"


def test_runs_go_on_while_the_optimized_executable_is_made(
    open_session: Open, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs do not wait between the end of the builds and the swap."""
    session = open_session()
    (want,) = session.run(None, X)
    begun, go = threading.Event(), threading.Event()
    real = Executable.__init__

    def wait(self: Executable, *args: Any, **options: Any) -> None:
        if threading.current_thread().name == THREAD_NAME:
            begun.set()
            assert go.wait(PATIENCE_S)
        real(self, *args, **options)

    monkeypatch.setattr(Executable, "__init__", wait)
    held.set()
    assert begun.wait(PATIENCE_S)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, X)[0], want)
    go.set()
    assert session.settle(PATIENCE_S)
    close_to(session.run(None, X)[0], want)
    assert session.last_timing.tier == "optimized"


def test_measurements_wait_for_the_optimized_programs(open_session: Open) -> None:
    session = open_session()
    session.run(None, X)
    session.profile(X, 1)
    assert session.last_timing.tier == "optimized"
    assert open_session().explain(X).tier.startswith("tier: optimized")
    tuned = open_session(tune="fast")
    tuned.run(None, X)
    assert tuned.last_timing.tier == "optimized"


def test_built_programs_are_used_at_once(open_session: Open, lacking: list[bool]) -> None:
    lacking[0] = False
    warm = open_session()
    warm.run(None, X)
    warm.settle()
    session = open_session()
    session.run(None, X)
    assert session.last_timing.tier == "optimized"
    assert session.stats().pending == 0
    assert session.stats().programs_built == 0


def test_a_knob_turns_it_off(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_TIERS", "0")
    session = open_session()
    session.run(None, X)
    assert session.last_timing.tier == "optimized"


def test_a_failed_background_build_leaves_the_session_running(
    open_session: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Runtime.build_all

    def fail(self: Runtime, *args: Any) -> Any:
        if threading.current_thread().name == THREAD_NAME:
            raise BuildError("this driver cannot compile it")
        return real(self, *args)

    monkeypatch.setattr(Runtime, "build_all", fail)
    session = open_session()
    want = by_onnxruntime(classifier(), X)[0]
    close_to(session.run(None, X)[0], want)
    assert session.settle(PATIENCE_S)
    for _ in range(2):
        close_to(session.run(None, X)[0], want)
    assert session.last_timing.tier == "generic"
    assert session.stats().faults == ("this driver cannot compile it",)
    assert "this driver cannot compile it" in session.explain().tier
    assert sum("cannot compile it" in r.message for r in caplog.records) == 1


def test_kernels_that_do_not_build_in_the_background_are_replaced(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another kernel replaces one whose program fails, as on the caller's thread."""
    real, failed = Runtime.build_all, []
    monkeypatch.setattr(Runtime, "exclude_kernels", lambda self, names: failed.extend(names))

    def fail(self: Runtime, specs: Any, *args: Any) -> Any:
        if threading.current_thread().name == THREAD_NAME and not failed:
            error = BuildError("this driver cannot compile it")
            error.program = specs[0][:2]
            raise error
        return real(self, specs, *args)

    monkeypatch.setattr(Runtime, "build_all", fail)
    session = open_session()
    session.run(None, X)
    assert session.settle(PATIENCE_S)
    assert failed
    close_to(session.run(None, X)[0], by_onnxruntime(classifier(), X)[0])
    assert session.last_timing.tier == "optimized"
    assert session.stats().faults == ()


@pytest.mark.parametrize("how", ["close", "del"])
def test_the_end_of_a_session_ends_its_builds(open_session: Open, held: threading.Event, how: str) -> None:
    session = open_session()
    session.run(None, X)
    background = session._background
    assert background is not None
    threads = [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
    assert threads
    if how == "close":
        session.close()
        assert session.stats().pending == 0
        close_to(session.run(None, X)[0], by_onnxruntime(classifier(), X)[0])  # and begins anew
        session.close()
    else:
        gone = weakref.ref(session)
        del session
        gc.collect()
        assert gone() is None
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_session_is_pickled_while_something_is_built(open_session: Open, held: threading.Event) -> None:
    import pickle

    session = open_session()
    session.run(None, X)
    copy = pickle.loads(pickle.dumps(session))
    close_to(copy.run(None, X)[0], session.run(None, X)[0])


def test_stats_are_json(open_session: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stats.jsonl"
    monkeypatch.setenv("OPALITE_STATS", str(path))
    session = open_session()
    assert session.stats().tier == ""
    session.run(None, X)
    assert session.settle(PATIENCE_S)
    session.run(None, X)
    raw = json.loads(session.stats().to_json())
    assert set(raw) == set(SessionStats.__dataclass_fields__)
    assert raw["runs"] == 2
    assert raw["bytes"]["weights"] > 0
    assert raw["bytes"]["inputs_outputs"] >= X["x"].nbytes
    assert raw["plans_made"] == 2
    session.close()
    session.close()
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["stats"]["runs"] == 2
    assert json.loads(line)["device"] == session.device.id


def test_nodes_without_a_generic_kernel_are_counted(
    open_session: Open, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes without a generic kernel run on the host, or by an optimized kernel if the host would take longer than a
    compiler. There is a generic kernel for Relu, and none for CumSum.
    """
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("CumSum", ["r", "axis"], ["y"])]
    model = make_model(nodes, [port("x", (4, 7))], [port("y", (4, 7))], {"axis": np.int64(1)})
    x = noise(4, 7)
    for work, on_host in ((1e9, True), (100.0, False)):
        monkeypatch.setattr(plan_graph, "HOST_WORK", work)
        session = open_session(model)
        assert session.stats().fallbacks == {}
        close_to(session.run(None, {"x": x})[0], np.maximum(x, 0).cumsum(1))
        assert session.last_timing.tier == "generic"
        ((known, _),) = session.stats().fallbacks.items()
        assert known == "host: Cumulative" if on_host else known.startswith("Cumulative")
        assert known in json.loads(session.stats().to_json())["fallbacks"]
        assert bool(session.explain().host_nodes) == on_host
    held.set()


def test_strict_sessions_leave_nothing_to_the_host(open_session: Open, held: threading.Event) -> None:
    model = make_model(
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        [port("x", (4, 7))],
        [port("y", (4, 7))],
        {"axis": np.int64(1)},
    )
    session = open_session(model, strict=True)
    session.run(None, {"x": noise(4, 7)})
    assert not session.explain().host_nodes
    held.set()


def test_counts_are_right_under_threads(open_session: Open) -> None:
    session = open_session()
    feeds = [{"x": noise(1, 3, 8 + i, 8)} for i in range(4)]

    def work() -> None:
        for i in range(20):
            session.run(None, feeds[i % 4])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert session.settle(PATIENCE_S)
    stats = session.stats()
    assert stats.runs == 80
    assert sum(stats.runs_by_tier.values()) == 80
    assert stats.swaps == 1  # one executable serves all sizes


_EXIT = """
import sys, threading, numpy as np, opalite
session = opalite.InferenceSession(sys.argv[1], device=sys.argv[2], precision="fp32")
(y,) = session.run(None, {"x": np.zeros((1, 3, 16, 16), np.float32)})
print(session.last_timing.tier, len(session.stats().faults), session.stats().pending, flush=True)
if sys.argv[3] == "fork":
    import os
    child = os.fork()
    if child == 0:
        try:
            session.run(None, {"x": np.zeros((1, 3, 16, 16), np.float32)})
        except opalite.errors.DeviceError:
            sys.exit(7)
        sys.exit(8)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
elif sys.argv[3] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("how", ["exit", "raise", "fork"])
def test_a_process_ends_at_once_while_something_is_built(rt: Runtime, tmp_path: Path, how: str) -> None:
    """The cache is empty: workers build when the interpreter ends, and none outlives it."""
    if not rt.programs.may_build_in_background or (how == "fork" and not hasattr(os, "fork")):
        pytest.skip("nothing is built in the background here")
    model = tmp_path / "m.onnx"
    model.write_bytes(classifier(channels=24).SerializeToString())
    environment = {**os.environ, "OPALITE_TIERS": "1", "OPALITE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _EXIT, str(model), rt.info.id, how]
    started = time.monotonic()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert time.monotonic() - started < PATIENCE_S
    assert done.returncode == (3 if how == "raise" else 0)
    lines = done.stdout.splitlines()
    assert lines[0] in ("generic 0 1", "optimized 0 0", "optimized 0 1"), lines
    if how == "fork":
        assert lines[1] == "7"
    while _processes_with(str(tmp_path)) and time.monotonic() - started < PATIENCE_S:
        time.sleep(0.05)  # a worker ends with its program, when it finds that nobody listens
    assert _processes_with(str(tmp_path)) == []


def _processes_with(word: str) -> list[str]:
    """Command lines and environments, under Linux, of processes that name `word`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in text and path.name != str(os.getpid()):
            found.append(path.name)
    return found


def test_without_threads_the_session_runs_on(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    session = open_session()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    close_to(session.run(None, X)[0], by_onnxruntime(classifier(), X)[0])
    assert session.settle(1)


def test_a_compiler_without_jobs_is_settled(rt: Runtime) -> None:
    class Owner:
        def on_swap(self, old: Executable, new: Executable) -> None: ...

    owner = Owner()
    background = BackgroundCompiler(rt, owner.on_swap)
    assert compile_queue(rt).settle(background.jobs, 0)
    assert background.jobs == []


def test_spare_programs_wait_for_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now, runs = 100.0, 0
    monkeypatch.setattr(background, "time", SimpleNamespace(monotonic=lambda: now))
    job = SpareCompileJob([("text", "", "name")], lambda: None, lambda: runs)
    assert not job.is_due, "the session may be in the midst of runs"
    for _ in range(20):
        now, runs = now + SPARE_IDLE_S, runs + 1
        assert not job.is_due, "runs follow each other"
    now += SPARE_IDLE_S
    assert job.is_due, "nothing has run for a while"
    runs += 1
    assert not job.is_due
    now = 100.0 + SPARE_LATEST_S
    assert job.is_due, "it was put off for long"


def test_spare_programs_are_built_at_once_for_a_caller_that_waits() -> None:
    job = SpareCompileJob([("text", "", "name")], lambda: None, lambda: 0)
    assert not job.is_due
    job.make_due()
    assert job.is_due


def test_weights_of_both_tiers_stay_on_the_device(
    rt: Runtime, lacking: list[bool], held: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table read by Gather stays while the generic executable is released with its other weights."""
    monkeypatch.setattr(background, "MIN_RELEASED_BYTES", 1)
    table, real, seen = noise(700, 512, seed=3), rt.weights._upload, list[Any]()
    model = make_model(
        [helper.make_node("Gather", ["t", "i"], ["p"]), helper.make_node("MatMul", ["p", "w"], ["y"])],
        [port("i", (4,), TensorProto.INT64)],
        [port("y", (4, 512))],
        {"t": table, "w": noise(512, 512, seed=4)},
    )
    onnx.save(model, tmp_path / "picks.onnx")

    def upload(array: Any, image: bool) -> Any:
        seen.append(array.shape)
        return real(array, image)

    monkeypatch.setattr(rt.weights, "_upload", upload)
    session = opalite.InferenceSession(tmp_path / "picks.onnx", device=rt.info.id, precision="fp32")
    ids = {"i": np.array([3, 699, 0, 77])}
    (want,) = session.run(None, ids)
    assert session.last_timing.tier == "generic"
    held.set()
    assert session.settle(PATIENCE_S)
    close_to(session.run(None, ids)[0], want)
    assert session.stats().swaps == 1
    assert seen.count(table.shape) == 1
