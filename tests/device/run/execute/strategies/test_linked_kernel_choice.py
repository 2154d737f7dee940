"""Decisions on linked kernels are stored: later sessions and replicas take them, until they are measured again."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.run.execute.strategies import linked_kernel_choice, linked_stretch

from .....helpers.linked_double import Double, double
from .....helpers.small_models import make_model, noise, port
from .test_persistent_kernel_strategy import ENOUGH, OTHER, Open, X, open_session, queueing, settled

__all__ = ["double", "open_session"]


def test_a_later_session_begins_with_linked_kernels(open_session: Open, double: type[Double]) -> None:
    first = open_session()
    want = settled(first)
    later = open_session()
    np.testing.assert_array_equal(later.run(None, X)[0], want)
    assert later.last_trace.strategy == "persistent"
    assert "linked into one kernel" in queueing(later)
    given = opalite.OrtValue.ortvalue_from_numpy(OTHER["x"], "opencl")
    other = first.run(None, OTHER)[0]
    np.testing.assert_array_equal(later.run(None, {"x": given})[0], other)
    assert later.last_trace.strategy == "persistent"
    assert len(double.made) == 2


def test_a_later_session_links_nothing_that_was_refused(
    open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked_kernel_choice, "GAIN", 0.0)
    settled(open_session())
    later = open_session()
    settled(later)
    assert len(double.made) == 1
    assert "enqueued one by one: linked, a run takes" in queueing(later)


def test_a_stored_decision_is_measured_again(
    open_session: Open, double: type[Double], monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(open_session())
    monkeypatch.setattr(linked_kernel_choice, "VALID_RUNS", 5)
    monkeypatch.setattr(linked_kernel_choice, "GAIN", 0.0)
    later = open_session()
    for _ in range(4):
        later.run(None, X)
        assert later.last_trace.strategy == "persistent"
    for _ in range(1 + ENOUGH):
        later.run(None, X)
    assert later.last_trace.strategy == "queue"
    assert "linked, a run takes" in queueing(later)
    monkeypatch.setattr(linked_kernel_choice, "GAIN", 1e9)
    last = open_session()
    for _ in range(4 + ENOUGH + 4):
        last.run(None, X)
        last.settle(60)
    assert last.last_trace.strategy == "persistent", "a refusal is measured again, too"


def test_kernels_that_failed_since_are_not_restored(
    open_session: Open, double: type[Double], rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretch = linked_stretch.Stretch([], [], [], str(uuid4()), False, "")
    monkeypatch.setattr(double.Linker, "link", lambda self, built: [stretch])
    text = stretch.text.encode()
    settled(open_session())
    rt.trials.record_failure(text, "")
    first = open_session()
    first.run(None, X)
    assert first.last_trace.strategy == "persistent", "its trial has passed"
    rt.trials.record_failure(text, "a run of it ended the context")
    later = open_session()
    later.run(None, X)
    assert later.last_trace.strategy == "queue"


def test_threads_take_linked_kernels(open_session: Open, double: type[Double]) -> None:
    """A replica takes what the original has linked, on memory of its own."""
    session = open_session()
    want = settled(session)
    (executable,) = session._dispatcher.run_record.executables
    replica = executable.make_replica(executable.program)
    with replica.entered():
        found, trace = replica.run([X["x"]])
    np.testing.assert_array_equal(found[0], want)
    assert trace.strategy == "persistent"
    assert len(double.made) == 2


def test_a_bound_run_that_failed_is_done_again(open_session: Open, double: type[Double]) -> None:
    session = open_session()
    settled(session)
    want = open_session().run(None, OTHER)[0]
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(OTHER["x"], session.device))
    binding.bind_output(session.get_outputs()[0].name, "opencl")
    for fails in (False, True):
        double.made[0].fails = [fails]
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)
        assert session.last_trace.strategy == ("queue" if fails else "persistent")


def doubling() -> bytes:
    """A loop whose body doubles a value and adds the number of the iteration."""
    inner = [port("i", [], 7), port("going", [], 9), port("a", [4])]
    nodes = [
        helper.make_node("Identity", ["going"], ["goes"]),
        helper.make_node("Cast", ["i"], ["number"], to=1),
        helper.make_node("Softmax", ["a"], ["s"]),
        helper.make_node("Add", ["s", "number"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["row"], keepdims=1),
    ]
    body = helper.make_graph(nodes, "body", inner, [port("goes", [], 9), port("b", [4]), port("row", [1])])
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y", "rows"], body=body)
    outputs = [port("y", [4]), port("rows", None)]
    raw: bytes = make_model([loop], [port("trips", [], 7), port("x", [4])], outputs).SerializeToString()
    return raw


@pytest.mark.parametrize("forgets", [False, True])
def test_iterations_of_a_loop(
    open_session: Open, double: type[Double], forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.forgets = forgets
    session = open_session(doubling())
    feeds = {"trips": np.array(6), "x": noise(4)}
    want = session.run(None, feeds)
    for _ in range(linked_kernel_choice.PAIRS + 12):
        session.settle(60)
        for a, b in zip(session.run(None, feeds), want, strict=True):
            np.testing.assert_array_equal(a, b)
    (executable,) = {id(e): e for e in session._dispatcher.run_record.executables}.values()
    assert session.last_trace.strategy == "loop_iterations"
    assert executable.last.name == ("queue" if forgets else "persistent")
    if forgets:
        assert "gave other bits" in queueing(session)
        return
    double.made[-1].fails = [True]
    for a, b in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_array_equal(a, b)
    later = open_session(doubling())
    later.run(None, feeds)
    later.settle(60)
    later.run(None, feeds)
    assert later._dispatcher.run_record.executables[0].last.name == "persistent"
