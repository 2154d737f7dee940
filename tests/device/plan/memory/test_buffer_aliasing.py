"""Graphs whose tensors lie inside others compute what references compute, however launches reach the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import BundleError
from opalite.ir import Graph
from opalite.ir.device.device_family import SLOW_SUB_BUFFERS
from opalite.lens.document import lens_document
from opalite.passes.pipeline import place
from opalite.plan.bundle import read_bundle as bundles
from opalite.plan.emit_program import emit
from opalite.plan.program import LaunchStep, Program
from opalite.run.execute.executable import Executable

from ....helpers.graphs import check_same, feeds_for, run_graph
from ....helpers.small_models import dense, noise
from ....null.plan.memory.test_buffer_aliasing import dense_block, fire, row_graphs, split_block

FEEDS = {"x": noise(1, 16, 12, 12, seed=9)}


@pytest.fixture
def nesting(rt: Runtime) -> Runtime:
    if SLOW_SUB_BUFFERS in rt.info.quirks:
        pytest.skip(f"{rt.info.name} is slow on parts of buffers")
    return rt


def planned(rt: Runtime, graph: Graph) -> Program:
    place(graph, rt.info)
    return emit(graph, rt.info)


def copies(program: Program) -> int:
    return sum(s.kernel in ("ConcatCopy", "SliceCopy") for s in program.steps if isinstance(s, LaunchStep))


def run(rt: Runtime, program: Program, feeds: dict[str, Any]) -> list[Any]:
    executable = Executable(rt, program, is_trial=True)
    arrays = [feeds[port.name] for port in program.inputs]
    executable.run([np.full_like(a, 1e4) for a in arrays])  # leaves stale values in the arena
    return executable.run(arrays)[0]


@pytest.mark.parametrize("make", [fire, split_block, lambda: dense_block(True), lambda: dense_block(False)])
def test_nested_tensors_hold_what_copies_hold(nesting: Runtime, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    feeds = feeds_for(make())
    program = planned(nesting, make())
    assert copies(program) == 0
    assert program.memory.nested >= 2
    got = run(nesting, program, feeds)
    check_same(run_graph(make(), feeds), got)
    monkeypatch.setenv("OPALITE_BUFFER_ALIASING", "0")
    plain = planned(nesting, make())
    assert copies(plain) >= 1  # GPUs join all inputs in one launch
    for a, b in zip(run(nesting, plain, feeds), got, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=row_graphs())
def test_random_graphs(rt: Runtime, graph: Graph) -> None:
    feeds = feeds_for(graph)
    want = run_graph(graph, feeds)
    for a, b in zip(want, run(rt, planned(rt, graph), feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def reference() -> Any:
    """What copies compute."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("OPALITE_BUFFER_ALIASING", "0")
        return opalite.InferenceSession(dense().SerializeToString(), precision="fp32").run(None, FEEDS)[0]


def open_session(source: Any = None) -> opalite.InferenceSession:
    return opalite.InferenceSession(source or dense().SerializeToString(), precision="fp32")


def test_a_session_tells_what_is_free_and_where(nesting: Runtime) -> None:
    session = open_session()
    np.testing.assert_array_equal(session.run(None, FEEDS)[0], reference())
    told = session.explain()
    assert "moves no data: its inputs are computed in its memory" in told.node("join2").why
    assert told.node("join1").why.endswith("inside %f")
    assert f", {told.memory[0].nested} tensors inside others" in str(told)
    boxes = lens_document(session.capture(FEEDS, 1), None, name="dense")["program"]["boxes"]
    nested = [b for b in boxes if b["within"] is not None]
    assert nested
    for box in nested:
        whole = boxes[box["within"]]
        assert whole["label"] == "f"
        assert whole["offset"] <= box["offset"]
        assert box["offset"] + box["bytes"] <= whole["offset"] + whole["bytes"]
        assert whole["first"] <= box["first"] <= box["last"] <= whole["last"]


def test_replays_of_nested_tensors(nesting: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "replay")
    session = open_session()
    for _ in range(4):
        np.testing.assert_array_equal(session.run(None, FEEDS)[0], reference())


def test_bound_memory_and_nested_tensors(nesting: Runtime) -> None:
    session = open_session()
    x = opalite.OrtValue.ortvalue_from_numpy(FEEDS["x"], nesting.info)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "opencl")
    for _ in range(3):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], reference())


def test_bundles_hold_nested_tensors(nesting: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dense.opal"
    opalite.compile(dense().SerializeToString(), path, precision="fp32")
    session = opalite.InferenceSession(path)
    np.testing.assert_array_equal(session.run(None, FEEDS)[0], reference())
    assert session.explain().memory[0].nested
    assert bundles.VERSION > 2  # programs of version 2 have slots without holders
    monkeypatch.setattr(bundles, "VERSION", 2)
    with pytest.raises(BundleError, match="this opalite reads 2"):
        opalite.InferenceSession(path)


def test_kept_plans_hold_nested_tensors(nesting: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        session = open_session()
        np.testing.assert_array_equal(session.run(None, FEEDS)[0], reference())
        assert session.explain().memory[0].nested
    assert list((tmp_path / "plans").rglob("*.opal"))
