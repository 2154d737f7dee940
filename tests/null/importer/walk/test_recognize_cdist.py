"""Scans that compute distances become one Distance; others are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

from onnx import TensorProto, numpy_helper

from ....helpers.numpy_session import NumpySession

ort = pytest.importorskip("onnxruntime")
rng = np.random.default_rng(2)
X, Y = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal((70, 3)).astype(np.float32)


def scan(steps: Sequence[Any], axis: int = 1, state: str = "state", **attrs: Any) -> bytes:
    """Return a Scan over the rows of y with points x as its state; `steps` lead from 'state' and 'row' to 'sum'."""
    info = oh.make_tensor_value_info
    inner = [
        *steps,
        oh.make_node("Identity", [state], ["state_out"]),
        oh.make_node("Identity", ["sum"], ["out"]),
    ]
    body = oh.make_graph(
        inner,
        "body",
        [info("state", TensorProto.FLOAT, [None, 3]), info("row", TensorProto.FLOAT, [3])],
        [info("state_out", TensorProto.FLOAT, None), info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([axis]), "axes")],
    )
    node = oh.make_node("Scan", ["x", "y"], ["kept", "found"], num_scan_inputs=1, body=body, **attrs)
    graph = oh.make_graph(
        [node],
        "g",
        [info("x", TensorProto.FLOAT, X.shape), info("y", TensorProto.FLOAT, Y.shape)],
        [info("kept", TensorProto.FLOAT, None), info("found", TensorProto.FLOAT, None)],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=10).SerializeToString()


def check(model: bytes, is_distance: bool) -> None:
    session = NumpySession(model)
    got = session.run({"x": X, "y": Y})
    ops = {n.op.name for s in session.imported for n in s.graph.nodes}
    assert ("PairwiseDistance" in ops and not session.tasks) == is_distance
    want = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": X, "y": Y})
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [["state", "row"], ["row", "state"]])
def test_squares_and_absolutes(order: list[str]) -> None:
    difference = oh.make_node("Sub", order, ["d"])
    check(scan([difference, oh.make_node("ReduceSumSquare", ["d", "axes"], ["sum"], keepdims=0)]), True)
    absolute = oh.make_node("Abs", ["d"], ["a"])
    check(scan([difference, absolute, oh.make_node("ReduceSum", ["a", "axes"], ["sum"], keepdims=0)]), True)
    check(scan([difference, oh.make_node("ReduceL1", ["d", "axes"], ["sum"], keepdims=0)]), True)


def test_what_only_looks_alike() -> None:
    difference = oh.make_node("Sub", ["state", "row"], ["d"])
    squares = oh.make_node("ReduceSumSquare", ["d", "axes"], ["sum"], keepdims=0)
    check(scan([difference, squares], axis=0), False)  # summed over the points
    check(scan([difference, oh.make_node("ReduceSumSquare", ["d", "axes"], ["sum"], keepdims=1)]), False)
    check(scan([difference, squares], state="d"), False)  # the state changes
    check(scan([difference, squares], scan_input_directions=[1]), False)  # backwards
    check(scan([oh.make_node("Sub", ["state", "state"], ["d"]), squares]), False)
