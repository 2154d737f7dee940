"""Models whose shapes depend on data: what crosses from one segment to the next stays on the device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime

from ....helpers.small_models import make_model, noise, port


def chosen_rows(rows: int = 300) -> Any:
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
    return make_model(nodes, [port("x", (rows, 24))], [port("y", None)], constants)


def with_chosen(model: Any, count: int, rows: int, seed: int) -> np.ndarray[Any, Any]:
    """An input of which `count` rows are chosen."""
    w = np.frombuffer(model.graph.initializer[0].raw_data, np.float32).reshape(24, 40)
    x = noise(rows, 24, seed=seed)
    signs = np.sign((x @ w).sum(1))
    wanted = np.where(np.random.default_rng(seed).permutation(rows) < count, 1, -1)
    return x * (signs * wanted)[:, None].astype(np.float32)


def expected(model: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    w = {i.name: np.frombuffer(i.raw_data, np.float32).reshape(i.dims) for i in model.graph.initializer[:2]}
    a = x.astype(np.float64) @ w["w"]
    return a[a.sum(1) > 0] @ w["v"]


def test_values_between_segments_stay_on_the_device(rt: Runtime) -> None:
    model = chosen_rows(5000)
    assert model.graph.initializer[0].data_type == TensorProto.FLOAT
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")
    for seed in range(4):
        x = noise(5000, 24, seed=seed)
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
    return make_model(nodes, [port("x", (24, 3000))], [port("y", None)], constants)


def test_what_was_uploaded_serves_later_segments(rt: Runtime) -> None:
    session = opalite.InferenceSession(best_row().SerializeToString(), device=rt.info.id, precision="fp32")
    for seed in range(3):
        x = noise(24, 3000, seed=seed)
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


@pytest.mark.parametrize("rows", [300, 5000])  # what crosses is copied, or stays on the device
def test_counts_of_a_route(rt: Runtime, rows: int) -> None:
    """Counts that grow, shrink, and end at 1 and 0, which are segments of their own; no run plans again."""
    model = chosen_rows(rows)
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")
    for count in (10, 1, 0, 11):
        session.run(None, {"x": with_chosen(model, count, rows, 0)})
        session.settle()
    session.run(None, {"x": with_chosen(model, 12, rows, 0)})
    plans = session.stats().plans_made
    for seed, count in enumerate((12, 20, 9, 2, 100, 1, 140, 0, 3, 290, 55)):
        x = with_chosen(model, count, rows, seed)
        (y,) = session.run(None, {"x": x})
        assert len(y) == count
        np.testing.assert_allclose(y, expected(model, x), rtol=1e-3, atol=1e-3)
    assert session.stats().plans_made == plans


def test_a_route_looks_at_no_plan(rt: Runtime) -> None:
    model = chosen_rows()
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")
    for count in (140, 150):
        session.run(None, {"x": with_chosen(model, count, 300, 0)})
        session.settle()
        session.run(None, {"x": with_chosen(model, count, 300, 0)})
    for seed, count in enumerate((144, 151, 138, 162)):
        x = with_chosen(model, count, 300, seed)
        (y,) = session.run(None, {"x": x})
        assert not session.last_timing.import_s
        np.testing.assert_allclose(y, expected(model, x), rtol=1e-3, atol=1e-3)
    assert len(session._dispatcher.run_record.executables) == 2
    bound = session.io_binding()  # outputs that stay on the device: by the model
    bound.bind_cpu_input("x", x)
    bound.bind_output("y", "opencl")
    session.run_with_iobinding(bound)
    np.testing.assert_allclose(bound.copy_outputs_to_cpu()[0], expected(model, x), rtol=1e-3, atol=1e-3)


def test_threads_on_several_segments(rt: Runtime) -> None:
    model = chosen_rows()
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")
    for count in (140, 150):
        session.run(None, {"x": with_chosen(model, count, 300, 0)})
        session.settle()
    inputs = [with_chosen(model, 100 + 7 * i, 300, i) for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: session.run(None, {"x": x})[0], inputs * 4))
    for x, y in zip(inputs * 4, found, strict=True):
        np.testing.assert_allclose(y, expected(model, x), rtol=1e-3, atol=1e-3)
