"""Models whose shapes depend on data: what crosses from one segment to the next stays on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime

from ....helpers.small_models import make_model, noise, port


def chosen_rows() -> Any:
    """Rows of x w whose sums are positive, times v: the number of rows depends on data, x w is read on both sides."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["a", "last"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["p"]),
        helper.make_node("NonZero", ["p"], ["i"]),
        helper.make_node("Squeeze", ["i", "first"], ["j"]),
        helper.make_node("Gather", ["a", "j"], ["g"], axis=0),
        helper.make_node("MatMul", ["g", "v"], ["y"]),
    ]
    constants = {
        "w": noise(24, 40, seed=1),
        "v": noise(40, 8, seed=2),
        "zero": np.array(0, np.float32),
        "last": np.array([1], np.int64),
        "first": np.array([0], np.int64),
    }
    return make_model(nodes, [port("x", (300, 24))], [port("y", None)], constants)


def expected(model: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    w = {i.name: np.frombuffer(i.raw_data, np.float32).reshape(i.dims) for i in model.graph.initializer[:2]}
    a = x.astype(np.float64) @ w["w"]
    return a[a.sum(1) > 0] @ w["v"]


def test_values_between_segments_stay_on_the_device(rt: Runtime) -> None:
    model = chosen_rows()
    assert model.graph.initializer[0].data_type == TensorProto.FLOAT
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")
    for seed in range(4):
        x = noise(300, 24, seed=seed)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, expected(model, x), rtol=1e-3, atol=1e-3)
    first, second = session._dispatcher.run_record.executables
    own = list(first.io._own.values())
    assert [c for c in second.io.bound.values() if any(c is o for o in own)]


def test_an_empty_choice_is_an_empty_output(rt: Runtime) -> None:
    session = opalite.InferenceSession(chosen_rows().SerializeToString(), device=rt.info.id, precision="fp32")
    for x in (np.zeros((300, 24), np.float32), noise(300, 24, seed=3)):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, expected(chosen_rows(), x), rtol=1e-3, atol=1e-3)


def best_row() -> Any:
    """The columns of x whose sums are positive, read past a transpose that the second half repeats."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("ReduceSum", ["t", "last"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["p"]),
        helper.make_node("NonZero", ["p"], ["i"]),
        helper.make_node("Squeeze", ["i", "first"], ["j"]),
        helper.make_node("Gather", ["t", "j"], ["g"], axis=0),
        helper.make_node("Add", ["g", "one"], ["y"]),
    ]
    constants = {
        "zero": np.array(4, np.float32),
        "one": np.array(1, np.float32),
        "last": np.array([1], np.int64),
        "first": np.array([0], np.int64),
    }
    return make_model(nodes, [port("x", (24, 300))], [port("y", None)], constants)


def test_what_was_uploaded_serves_later_segments(rt: Runtime) -> None:
    session = opalite.InferenceSession(best_row().SerializeToString(), device=rt.info.id, precision="fp32")
    for seed in range(3):
        x = noise(24, 300, seed=seed)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, x.T[x.sum(0) > 4] + 1, rtol=1e-6)
    first, second = session._dispatcher.run_record.executables
    own = list(first.io._own.values())
    assert [c for c in second.io.bound.values() if any(c is o for o in own)]
    assert "Transpose" not in [r.op for r in first.program.placement]


def test_an_input_is_read_by_three_segments(rt: Runtime) -> None:
    """The second takes what the first uploaded; the third must not take the second's own memory, which nobody wrote."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["i"]),
        helper.make_node("Shape", ["i"], ["n"]),
        helper.make_node("ReduceSum", ["i"], ["k"], keepdims=0),
        helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["b"]),
        helper.make_node("NonZero", ["b"], ["j"]),
        helper.make_node("Cast", ["j"], ["g"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["g"], ["h"], keepdims=0),
        helper.make_node("Add", ["x", "h"], ["y"]),
    ]
    model = make_model(nodes, [port("x", (12, 5))], [port("y", None), port("n", None)], {})
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")
    for seed in range(3):
        x = noise(12, 5, seed=seed)
        y = session.run(None, {"x": x})[0]
        b = x + np.float32(sum(map(np.sum, np.nonzero(np.maximum(x, 0)))))
        h = np.float32(sum(map(np.sum, np.nonzero(b))))
        np.testing.assert_allclose(y, x + h, rtol=1e-5)
