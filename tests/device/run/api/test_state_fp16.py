"""Caches kept in halves: of float32 models by precision fp16, and of models that are halves themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from onnx import TensorProto, helper, numpy_helper
from opalite.cl.runtime import Runtime

from ....helpers.decoders import KINDS, feeds_of, told

TOKENS = [5, 3, 8, 60, 2, 9, 44, 17, 1, 70, 31, 6]


def open_session(rt: Runtime, model: bytes, precision: str = "fp16") -> opalite.InferenceSession:
    return opalite.InferenceSession(model, device=rt.info.id, precision=precision)


def halved(data: bytes) -> bytes:
    """The model with halves in the place of all its floats."""
    model = onnx.load_from_string(data)
    graph = model.graph
    for i, w in enumerate(graph.initializer):
        if w.data_type == TensorProto.FLOAT:
            array = np.maximum(numpy_helper.to_array(w), np.float32(-6e4)).astype(np.float16)
            graph.initializer[i].CopyFrom(numpy_helper.from_array(array, w.name))
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for a in node.attribute:
            if (node.op_type, a.name, a.i) == ("Cast", "to", TensorProto.FLOAT):
                a.i = TensorProto.FLOAT16
    data = model.SerializeToString()
    assert isinstance(data, bytes)
    return data


def agree(found: list[Any], wanted: list[Any], atol: float = 0.03) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.astype(np.float32), b, rtol=0, atol=atol * np.abs(b).max())


@pytest.mark.parametrize("kind", ["llama", "grouped", "merged"])
def test_float32_is_kept_in_halves(rt: Runtime, kind: str, tmp_path: Path) -> None:
    model = KINDS[kind]()
    wide = open_session(rt, model, "fp32").state(reserve=32)
    wanted = told(wide, kind, TOKENS)
    session = open_session(rt, model)
    state = session.state(reserve=32)
    agree(told(state, kind, TOKENS), wanted)
    assert (state.copies, len(state)) == ("", len(TOKENS))
    assert state.nbytes < 0.6 * wide.nbytes
    assert all(a.dtype == np.float32 for a in state.arrays().values())
    branch = state.fork()
    state.save(tmp_path / "kept.npz")
    other = session.state()
    other.load(tmp_path / "kept.npz")
    further = told(wide, kind, [4, 8], len(TOKENS))
    for each in (state, branch, other):
        agree(told(each, kind, [4, 8], len(TOKENS)), further)
        assert each.copies == ""
        agree(list(each.arrays().values()), list(wide.arrays().values()))


@pytest.mark.parametrize("kind", ["llama", "merged"])
def test_models_of_halves(rt: Runtime, kind: str) -> None:
    model = KINDS[kind]()
    wanted = told(open_session(rt, model, "fp32").state(), kind, TOKENS)
    state = open_session(rt, halved(model), "fp32").state()
    agree(told(state, kind, TOKENS), wanted)
    assert state.copies == ""
    assert all(a.dtype == np.float16 for a in state.arrays().values())


def sums() -> bytes:
    """y = x @ a @ b + sum(cache), where half does not hold x @ a of large x."""
    a, b = np.full((4, 4), 300.0, np.float32), np.full((4, 4), 1 / 4800, np.float32)
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present", "axes"], ["sum"], keepdims=1),
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["xa", "b"], ["xab"]),
        helper.make_node("Add", ["xab", "sum"], ["y"]),
    ]
    shapes = {"x": (1, 1, 4), "past": (1, "P", 4), "present": (1, "Q", 4), "y": (1, 1, 4)}
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()}
    weights = {"a": a, "b": b, "axes": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "sums",
        [infos["x"], infos["past"]],
        [infos["y"], infos["present"]],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = model.SerializeToString()
    assert isinstance(data, bytes)
    return data


@pytest.mark.parametrize("large", [0, 2, 6])
@pytest.mark.parametrize("loads", [False, True])
def test_halves_that_overflow(rt: Runtime, large: int, loads: bool) -> None:
    """A step that half does not hold is made again in float32, and what was appended before it is kept."""
    session = open_session(rt, sums())
    state = session.state({"past": "present"}, reserve=4)
    total = np.zeros(4, np.float32)
    if loads:
        state.set_values({"past": np.ones((1, 3, 4), np.float32)})
        total += 3
    for step in range(9):
        x = np.full((1, 1, 4), 300.0 if step == large else step + 1, np.float32)
        total += x[0, 0]
        (y,) = state.run({"x": x})
        np.testing.assert_allclose(y[0, 0], x[0, 0] + total, rtol=2e-3, err_msg=str(step))
    assert state.copies == ""
    assert len(state) == 9 + 3 * loads
    assert state.arrays()["past"][0, large + 3 * loads, 0] == 300


def test_values_that_half_does_not_hold_are_kept(rt: Runtime) -> None:
    """A loaded state: its runs are right, even if they copy the caches."""
    state = open_session(rt, sums()).state({"past": "present"})
    for x in (1.0, 2.0):
        state.run({"x": np.full((1, 1, 4), x, np.float32)})
    state.set_values({"past": np.full((1, 2, 4), 1e6, np.float32)})
    (y,) = state.run({"x": np.ones((1, 1, 4), np.float32)})
    np.testing.assert_allclose(y, 2e6 + 2, rtol=1e-3)


def test_outputs_on_the_device(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state, other = session.state(), session.state()
    wanted = told(state, "llama", TOKENS)
    for step, want in zip([TOKENS[:4], *([t] for t in TOKENS[4:])], wanted, strict=True):
        (logits,) = other.run(feeds_of("llama", np.array([step]), len(other)), on_device=True)
        np.testing.assert_array_equal(logits.numpy(), want)
    assert logits.device_name() == "opencl"


def test_a_precision_that_is_chosen_by_measurement(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state goes by what was chosen so far: float32, and halves in the sessions after the choice."""
    monkeypatch.setenv("OPALITE_TRY_HALF", "1")
    model = KINDS["llama"]()
    wanted = told(open_session(rt, model, "fp32").state(), "llama", TOKENS)
    session = open_session(rt, model, "auto")
    state = session.state()
    for a, b in zip(told(state, "llama", TOKENS), wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert state.copies == ""
    assert {a.dtype for a in state.arrays().values()} == {np.dtype(np.float32)}
