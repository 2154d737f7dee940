"""Models that recur in short processes: each goes on with what the one before has planned and built."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from onnx import helper
from opalite.cl.programs.program_cache import ProgramCache
from opalite.cl.runtime import Runtime
from opalite.errors import BuildError
from opalite.run.model.background import graph_compiler
from opalite.run.model.background.graph_compiler import Compiler
from opalite.run.model.plans.plan_files import GENERIC, PENDING

from .....helpers.onnx_text import by_onnxruntime
from .....helpers.small_models import classifier, make_model, noise, port

X = {"x": noise(1, 3, 16, 16)}
PATIENCE_S = 120.0
ENDED = str(2**31 - 1)  # more than any system's largest number of a process


class Unbuilt:
    """Optimized programs count as missing until `get_all` was called for them. asked: the numbers of programs."""

    def __init__(self) -> None:
        self.generic: set[Any] = set()
        self.built: set[Any] = set()
        self.asked: list[int] = []
        self.fails = False

    def missing(self, specs: Sequence[Any]) -> list[Any]:
        distinct = {s[:2]: s for s in specs}
        return [s for key, s in distinct.items() if key not in self.generic and key not in self.built]


@pytest.fixture
def unbuilt(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unbuilt]:
    """No background build ends before the test does: each session is a process that ended early."""
    monkeypatch.setenv("OPALITE_TIERS", "1")
    monkeypatch.setattr(type(rt.programs), "may_build_in_background", True)
    found, ended = Unbuilt(), threading.Event()
    plan_generic, get_all = Compiler.plan_generic, ProgramCache.get_all

    def plan(self: Compiler, *args: Any) -> Any:
        planned = plan_generic(self, *args)
        found.generic.update((s.text, s.options) for s in planned.program.sources)
        return planned

    def build(self: ProgramCache, specs: Any, *args: Any, **options: Any) -> Any:
        if missing := found.missing(specs):
            found.asked.append(len(missing))
            if found.fails:
                raise BuildError("the compiler is broken")
        found.built.update(s[:2] for s in specs)
        return get_all(self, specs, *args, **options)

    def wait(self: ProgramCache, specs: Any, stop: Callable[[], bool], *args: Any, **options: Any) -> None:
        while not (ended.wait(0.01) or stop()):
            pass

    monkeypatch.setattr(Compiler, "plan_generic", plan)
    monkeypatch.setattr(ProgramCache, "missing", lambda self, specs: found.missing(specs))
    monkeypatch.setattr(ProgramCache, "get_all", build)
    monkeypatch.setattr(ProgramCache, "build_in_background", wait)
    yield found
    ended.set()


class Processes:
    """Runs a model once a process: a session that is closed, whose traces in the cache bear another number."""

    def __init__(self, path: Path, folder: Path, rt: Runtime) -> None:
        self.path, self.folder, self.rt = path, folder, rt
        self.want = by_onnxruntime(classifier(), X)[0]

    def run(self) -> opalite.InferenceSession:
        session = opalite.InferenceSession(self.path, device=self.rt.info.id, precision="fp32")
        np.testing.assert_allclose(session.run(None, X)[0], self.want, rtol=1e-4, atol=1e-5)
        session.close()
        for path in self.files(PENDING):
            path.write_text(ENDED)
        return session

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.folder.glob(f"plans/*/*/*{suffix}"))

    @property
    def generic_plans(self) -> list[Path]:
        return list(self.folder.glob(f"plans/*/*/{GENERIC}/*"))


@pytest.fixture
def processes(folder: Path, tmp_path: Path, rt: Runtime) -> Processes:
    path = tmp_path / "classifier.onnx"
    path.write_bytes(classifier().SerializeToString())
    return Processes(path, folder, rt)


def test_the_second_process_builds_first_what_is_missing(processes: Processes, unbuilt: Unbuilt) -> None:
    first = processes.run()
    assert first.last_timing.tier == "generic"
    assert not unbuilt.asked
    assert len(processes.files(PENDING)) == 1
    second = processes.run()
    assert second.last_timing.tier == "optimized"
    assert unbuilt.asked
    assert not processes.files(PENDING)
    third = processes.run()
    assert third.last_timing.tier == "optimized"
    assert (third.stats().plans_made, third.stats().plans_loaded) == (0, 1)


@pytest.mark.parametrize("pid", [os.getpid(), os.getppid()], ids=["own", "parent"])
def test_what_a_running_process_builds_is_not_built_here(processes: Processes, unbuilt: Unbuilt, pid: int) -> None:
    processes.run()
    for path in processes.files(PENDING):
        path.write_text(str(pid))
    assert processes.run().last_timing.tier == "generic"
    assert not unbuilt.asked


def test_many_programs_take_several_processes(
    processes: Processes, unbuilt: Unbuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both plans are kept meanwhile, so that nothing is imported."""
    monkeypatch.setattr(graph_compiler, "BUILT_FIRST", 1)
    monkeypatch.setattr(graph_compiler, "worker_count", lambda: 1)
    processes.run()
    tiers, imported = [], []
    for _ in range(20):
        session = processes.run()
        tiers.append(session.last_timing.tier)
        imported.append(session._model.is_imported)
        if tiers[-1] == "optimized":
            break
        assert len(processes.generic_plans) == 1
    assert tiers[0] == "generic"
    assert tiers[-1] == "optimized"
    assert set(unbuilt.asked) == {1}
    assert imported == [True] + [False] * (len(tiers) - 1)
    assert not processes.generic_plans
    assert not processes.files(PENDING)


def test_a_kept_generic_plan_is_replaced_in_the_background(
    processes: Processes, unbuilt: Unbuilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_compiler, "BUILT_FIRST", 0)
    for _ in range(2):
        processes.run()
    assert len(processes.generic_plans) == 1
    session = opalite.InferenceSession(processes.path, device=processes.rt.info.id, precision="fp32")
    session.run(None, X)
    assert (session.last_timing.tier, session.stats().plans_loaded) == ("generic", 1)
    assert session.stats().pending
    monkeypatch.setattr(ProgramCache, "build_in_background", lambda *args, **options: None)
    second = opalite.InferenceSession(processes.path, device=processes.rt.info.id, precision="fp32")
    second.run(None, X)
    assert second.settle(PATIENCE_S)
    np.testing.assert_allclose(second.run(None, X)[0], processes.want, rtol=1e-4, atol=1e-5)
    assert second.last_timing.tier == "optimized"
    assert not second._model.is_imported
    assert not processes.files(PENDING)


def test_programs_that_do_not_compile_leave_generic_ones(processes: Processes, unbuilt: Unbuilt) -> None:
    processes.run()
    unbuilt.fails = True
    for _ in range(2):
        assert processes.run().last_timing.tier == "generic"
    unbuilt.fails = False
    assert processes.run().last_timing.tier == "optimized"


def compared() -> Any:
    """An If that compares an input, as the sampling rate of voice detectors, around products of other widths."""
    branches = []
    for name, width in (("wide", 7), ("narrow", 3)):
        weight = onnx.numpy_helper.from_array(noise(5, width), f"w_{name}")
        nodes = [
            helper.make_node("MatMul", ["x", f"w_{name}"], [f"m_{name}"]),
            helper.make_node("Tanh", [f"m_{name}"], [f"y_{name}"]),
        ]
        branches.append(helper.make_graph(nodes, name, [], [port(f"y_{name}", None)], [weight]))
    nodes = [
        helper.make_node("Equal", ["rate", "full"], ["is_full"]),
        helper.make_node("If", ["is_full"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    rate = helper.make_tensor_value_info("rate", onnx.TensorProto.INT64, ())
    return make_model(nodes, [port("x", ("n", 5)), rate], [port("y", None)], {"full": np.array(16000)})


def test_contents_that_choose_a_program_choose_a_plan(folder: Path, tmp_path: Path, rt: Runtime) -> None:
    path = tmp_path / "compared.onnx"
    path.write_bytes(compared().SerializeToString())
    feeds = [{"x": noise(2, 5), "rate": np.array(rate)} for rate in (16000, 8000)]
    wanted = [by_onnxruntime(compared(), f)[0] for f in feeds]
    first = opalite.InferenceSession(path, device=rt.info.id, precision="fp32")
    for f, want in zip(feeds, wanted, strict=True):
        np.testing.assert_allclose(first.run(None, f)[0], want, rtol=1e-4, atol=1e-5)
    second = opalite.InferenceSession(path, device=rt.info.id, precision="fp32")
    for _ in range(3):
        for f, want in zip(feeds, wanted, strict=True):
            np.testing.assert_allclose(second.run(None, f)[0], want, rtol=1e-4, atol=1e-5)
    assert not second._model.is_imported
    assert (second.stats().plans_made, second.stats().plans_loaded) == (0, 2)
    as_vector = {**feeds[0], "rate": np.array([16000])}
    first.run(None, as_vector)
    third = opalite.InferenceSession(path, device=rt.info.id, precision="fp32")
    np.testing.assert_allclose(third.run(None, as_vector)[0], wanted[0], rtol=1e-4, atol=1e-5)
    assert not third._model.is_imported, "a vector of one element is accepted as a scalar"
    other = {"x": noise(2, 5), "rate": np.array(11025)}
    np.testing.assert_allclose(second.run(None, other)[0], by_onnxruntime(compared(), other)[0], rtol=1e-4, atol=1e-5)


def counted() -> Any:
    """As many rows as there are positive numbers: two programs, between which the host counts."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Greater", ["m", "zero"], ["is_positive"]),
        helper.make_node("NonZero", ["is_positive"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["places"], perm=[1, 0]),
        helper.make_node("GatherND", ["m", "places"], ["found"]),
        helper.make_node("Exp", ["found"], ["y"]),
    ]
    constants = {"w": noise(5, 6), "zero": np.array(0, np.float32)}
    return make_model(nodes, [port("x", ("n", 5))], [port("y", None)], constants)


def test_each_of_several_segments_has_a_plan(folder: Path, tmp_path: Path, rt: Runtime) -> None:
    """Other counts than those of the first process too."""
    path = tmp_path / "counted.onnx"
    path.write_bytes(counted().SerializeToString())
    feeds = [{"x": noise(n, 5) * s} for n, s in ((4, 1), (9, -1), (4, -1))]
    made = []
    for order in (feeds, feeds[::-1]):
        session = opalite.InferenceSession(path, device=rt.info.id, precision="fp32")
        for f in order:
            want = by_onnxruntime(counted(), f)[0]
            np.testing.assert_allclose(session.run(None, f)[0], want, rtol=1e-4, atol=1e-5)
        made.append((session.stats().plans_made, session.stats().plans_loaded))
        session.close()
    assert made[0][0] >= 2
    assert made[1] == (0, made[0][0])
    damaged = sorted(folder.glob("plans/*/*/segments/*.opal"))
    assert len(damaged) == made[0][0]
    damaged[0].write_bytes(damaged[0].read_bytes()[:-100])
    session = opalite.InferenceSession(path, device=rt.info.id, precision="fp32")
    np.testing.assert_allclose(
        session.run(None, feeds[0])[0], by_onnxruntime(counted(), feeds[0])[0], rtol=1e-4, atol=1e-5
    )
    session.run(None, feeds[1])
    assert session.stats().plans_made == 1
    again = opalite.InferenceSession(path, device=rt.info.id, precision="fp32")
    again.run(None, feeds[0])
    again.run(None, feeds[1])
    assert again.stats().plans_made == 0
