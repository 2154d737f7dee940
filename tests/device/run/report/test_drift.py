"""Errors along the graph: where each node alone agrees with its reference, and the output does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite.ir.precision import Precision
from opalite.run.report.drift import DriftPoint, record_drift
from opalite.run.report.precision_steps import policy_for, precision_steps
from opalite.run.report.verify_nodes import verify_model

from ....helpers.small_models import classifier, make_model, noise, port

F = np.float32
X = {"x": noise(4, 32)}


def cancelling() -> bytes:
    """Adds 1000, stores the sum, and takes 1000 away: half keeps half a digit of x."""
    constants = {"w": np.eye(32, dtype=F), "more": np.full(32, 1000, F), "less": np.full(32, -1000, F)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Add", ["a", "more"], ["b"], "raise"),
        helper.make_node("MatMul", ["b", "w"], ["c"], "second"),
        helper.make_node("Add", ["c", "less"], ["y"], "lower"),
    ]
    return bytes(make_model(nodes, [port("x", [4, 32])], [port("y", [4, 32])], constants).SerializeToString())


def test_each_node_passes_and_the_drift_is_found() -> None:
    model = cancelling()
    assert all(c.passed for c in verify_model(model, X, precision="fp16").nodes)
    found = record_drift(model, X, precision="fp16", allowed=0.02)
    assert not found.passed
    (start,) = [found.start]
    assert start is not None
    assert "second" in start.nodes
    assert start.relative > 0.02 > start.own + start.inherited
    before = found.points[start.index - 1]
    assert "raise" in before.nodes
    assert before.largest > 997
    assert record_drift(model, X, precision="fp32", allowed=0.02).passed


def branching() -> Any:
    """A product whose sign decides whether it is passed on as it is."""
    sides = [
        helper.make_graph([helper.make_node(op, ["h"], ["t"])], op, [], [port("t", None)]) for op in ("Identity", "Neg")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "mul"),
        helper.make_node("ReduceSum", ["h"], ["q"], "sum", keepdims=0),
        helper.make_node("Less", ["q", "far"], ["c"], "less"),
        helper.make_node("If", ["c"], ["y"], "if", then_branch=sides[0], else_branch=sides[1]),
    ]
    return make_model(nodes, [port("x", [4, 32])], [port("y", None)], {"w": noise(32, 32), "far": F(1e9)})


def looping() -> Any:
    """Halves x until its sum is small, step by step."""
    inside = [
        helper.make_node("Mul", ["h", "half"], ["h2"], "halve"),
        helper.make_node("ReduceSum", ["h2"], ["q"], "sum", keepdims=0),
        helper.make_node("Greater", ["q", "near"], ["c2"], "more"),
    ]
    taken = [port("i", [], TensorProto.INT64), port("c", [], TensorProto.BOOL), port("h", [4, 32])]
    body = helper.make_graph(inside, "body", taken, [port("c2", [], TensorProto.BOOL), port("h2", [4, 32])])
    nodes = [
        helper.make_node("Abs", ["x"], ["r"], "abs"),
        helper.make_node("Loop", ["", "go", "r"], ["z"], "loop", body=body),
        helper.make_node("Sub", ["z", "near"], ["y"], "after"),
    ]
    constants = {"half": F(0.45), "near": F(20), "go": np.bool_(True)}
    return make_model(nodes, [port("x", [4, 32])], [port("y", [4, 32])], constants)


@pytest.mark.parametrize("make", [branching, looping])
def test_outputs_of_branches_and_loops_are_compared(make: Any) -> None:
    model = make().SerializeToString()
    (output,) = record_drift(model, X, precision="fp16").outputs
    assert 0 < output.relative < 0.01, "half is never exact here"
    whole = verify_model(model, X)
    assert [c.what for c in whole.outputs] == ["output 'y'"]
    assert all(c.passed for c in whole.outputs)
    assert precision_steps(model, X)[-1].error == 0


def test_values_are_those_of_a_run() -> None:
    kept: dict[str, np.ndarray[Any, Any]] = {}

    def keep(point: DriftPoint, got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
        kept[point.value] = got
        assert got.shape == want.shape == point.shape
        assert want.dtype == np.float64

    model, feeds = classifier().SerializeToString(), {"x": noise(1, 3, 8, 8)}
    found = record_drift(model, feeds, precision="fp16", on_value=keep)
    with opalite.InferenceSession(model, precision="fp16") as session:
        (y,) = session.run(None, feeds)
    np.testing.assert_allclose(kept["y"], y, rtol=2e-3)
    assert [p.index for p in found.points] == list(range(len(kept)))
    for p in found.points:
        assert p.stored == "f16"
        assert 0 < p.relative < 1e-2
        assert p.snr_db is not None
        assert p.snr_db > 40
        assert (p.lost, p.near_overflow) == (0, 0)
    exact = record_drift(model, feeds, precision="fp32")
    assert max(p.relative for p in exact.points) < 1e-5


def test_ranges_count_what_half_cannot_hold() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "grow")]

    def only_point(weight: float, value: float) -> DriftPoint:
        model = make_model(nodes, [port("x", [4, 32])], [port("y", [4, 32])], {"w": np.eye(32, dtype=F) * F(weight)})
        feeds = {"x": np.full((4, 32), value, F)}
        (point,) = record_drift(model.SerializeToString(), feeds, precision="fp16").points
        return point

    beyond, below, near = only_point(300, 300), only_point(1e-2, 1e-3), only_point(200, 200)
    assert (beyond.lost, beyond.snr_db) == (1, -np.inf)
    assert (below.subnormal, below.lost) == (1, 0)
    assert (near.near_overflow, near.lost) == (1, 0)


def test_drift_goes_through_segments_and_branches() -> None:
    """NonZero ends a segment; what follows still gets the device's values."""
    then = helper.make_graph([helper.make_node("Neg", ["p"], ["n"])], "t", [], [port("n", None)])
    other = helper.make_graph([helper.make_node("Abs", ["p"], ["m"])], "e", [], [port("m", None)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "before"),
        helper.make_node("NonZero", ["c"], ["i"], "which"),
        helper.make_node("Transpose", ["i"], ["t"], perm=[1, 0]),
        helper.make_node("Squeeze", ["t", "axes"], ["rows"]),
        helper.make_node("Gather", ["a", "rows"], ["p"], axis=0),
        helper.make_node("If", ["flag"], ["q"], then_branch=then, else_branch=other),
        helper.make_node("MatMul", ["q", "w"], ["y"], "after"),
    ]
    constants = {"w": noise(32, 32, seed=3), "axes": np.array([1])}
    ports = [port("x", [4, 32]), port("c", [4], TensorProto.INT64), port("flag", [], TensorProto.BOOL)]
    model = make_model(nodes, ports, [port("y", None)], constants).SerializeToString()
    feeds = {**X, "c": np.array([1, 0, 1, 1]), "flag": np.array(True)}
    found = record_drift(model, feeds, precision="fp16")
    names = [n for p in found.points for n in p.nodes]
    assert "before" in names
    assert "after" in names
    last = next(p for p in found.points if "after" in p.nodes)
    assert last.relative > 0
    assert found.passed


def test_what_a_tolerance_costs() -> None:
    model = cancelling()
    steps = precision_steps(model, X, groups=2)
    assert steps[0].policy.precision is Precision.FP16
    assert not steps[0].policy.fp32
    assert steps[0].error > 0.02
    assert (steps[-1].policy.precision, steps[-1].error) == (Precision.FP32, 0.0)
    assert all(s.seconds and s.nbytes for s in steps)
    assert policy_for(steps, 1e-9).error <= 1e-9
    chosen = policy_for(steps, 0.02)
    assert chosen.error <= 0.02
    with opalite.InferenceSession(model, precision=chosen.policy) as session:
        np.testing.assert_allclose(session.run(None, X)[0], X["x"], atol=0.02 * np.abs(X["x"]).max())


def test_what_has_no_nodes_is_refused() -> None:
    with pytest.raises(opalite.InputError, match="steps go from half precision"):
        precision_steps(cancelling(), X, precision=Precision.FP32)
