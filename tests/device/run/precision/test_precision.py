"""Half precision end to end: detected overflow, and policies that are found, written and loaded."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import opalite
from onnx import TensorProto, helper, numpy_helper
from opalite.cl.runtime import Runtime
from opalite.cli import main
from opalite.errors import DeviceError, InputError
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.tolerances import relative_difference, tolerance
from opalite.layout.assign_precision import set_precision
from opalite.plan import planner
from opalite.run.precision.find_mixed_policy import find_policy

from ....helpers.small_models import classifier, make_model, noise, port, save

X = {"x": np.ones((1, 4, 5, 5), np.float32)}


def towering(scale: float = 300.0) -> Any:
    """Five 1x1 convolutions: the second and third give scale ** 2, far beyond half; the fourth divides again."""
    names = ["x", "a", "b", "c", "d", "y"]
    factors = {"a": scale, "b": scale, "c": 1.0, "d": scale**-2, "y": 1.0}
    nodes = [helper.make_node("Conv", [i, f"w_{o}"], [o], name=o) for i, o in itertools.pairwise(names)]
    weights = {f"w_{o}": (np.eye(4) * f).astype(np.float32).reshape(4, 4, 1, 1) for o, f in factors.items()}
    shape = [1, 4, 5, 5]
    return make_model(nodes, [port("x", shape)], [port("y", shape)], weights)


def session_of(rt: Runtime, model: Any, precision: Any) -> opalite.InferenceSession:
    return opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision=precision, memory="buffer")


def test_half_storage_works_without_half_arithmetic(rt: Runtime) -> None:
    x = {"x": noise(2, 3, 17, 13)}
    with session_of(rt, classifier(), "fp32") as wide, session_of(rt, classifier(), "fp16") as half:
        (want,), (got,) = wide.run(None, x), half.run(None, x)
        assert 0 < relative_difference(got, want) <= tolerance("model", Precision.FP16)
        places = {n.name: n.places[0] for n in half.explain().nodes}
    assert "f16" in places["conv1"]
    assert "f16" in places["fc"]


def test_outputs_that_overflow_are_computed_in_float32_and_it_is_told(
    rt: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with session_of(rt, towering(), "fp16") as session, caplog.at_level(logging.WARNING):
        for _ in range(2):
            (got,) = session.run(None, X)
            np.testing.assert_allclose(got, X["x"], rtol=1e-4)
        assert session.overflowed
        assert "half storage overflowed" in str(session.explain())
    assert sum("--write-policy" in r.message for r in caplog.records) == 1


def test_routes_of_half_storage_check_outputs(rt: Runtime) -> None:
    """Known inputs skip the model until outputs are infinite."""
    small = {"x": (X["x"] * 1e-3).astype(np.float32)}
    with session_of(rt, towering(), "fp16") as session:
        session.run(None, small)
        session.settle()
        for _ in range(3):
            (got,) = session.run(None, small)
            np.testing.assert_allclose(got, small["x"], rtol=1e-2)
        assert session.last_timing.import_s == 0
        assert not session.overflowed
        for _ in range(3):
            (got,) = session.run(None, X)
            np.testing.assert_allclose(got, X["x"], rtol=1e-4)
        assert session.overflowed
        (got,) = session.run(None, small)
        np.testing.assert_allclose(got, small["x"], rtol=1e-4)
        assert session.last_timing.import_s == 0


def test_infinities_of_the_model_itself_do_not_cost_float32(rt: Runtime) -> None:
    model = make_model(
        [helper.make_node("Log", ["x"], ["y"], name="log")], [port("x", [4])], [port("y", [4])], opset=18
    )
    with session_of(rt, model, "fp16") as session:
        (got,) = session.run(None, {"x": np.array([0, 1, 2, 4], np.float32)})
        assert got[0] == -np.inf
        assert not session.overflowed
        assert "overflowed" not in str(session.explain())


def test_a_policy_keeps_what_leaves_the_range(rt: Runtime) -> None:
    found = find_policy(towering().SerializeToString(), X, device=rt.info.id, memory="buffer")
    assert found.good
    assert found.plain == np.inf
    assert set(found.policy.fp32) == {"b", "c", "d"}
    assert found.policy.fp32["b"] == "its values reach 9e+04"
    with session_of(rt, towering(), found.policy) as session:
        (got,) = session.run(None, X)
        np.testing.assert_allclose(got, X["x"], rtol=1e-2)
        assert not session.overflowed
        explained = {n.name: n for n in session.explain().nodes if n.op == "Conv"}
        assert "in float32: its values reach 9e+04" in explained["b"].why
        assert "f16" in explained["a"].places[0]


def test_what_half_can_hold_needs_no_policy(rt: Runtime) -> None:
    found = find_policy(classifier().SerializeToString(), {"x": noise(1, 3, 9, 7)}, device=rt.info.id)
    assert found.good
    assert not found.policy.fp32
    with pytest.raises(InputError, match="which nodes keep fp32 in fp16 or fp16_fast"):
        find_policy(classifier().SerializeToString(), {}, precision=Precision.FP32)


def test_the_command_writes_a_policy_that_sessions_load(rt: Runtime, tmp_path: Path) -> None:
    model, path = save(towering(), tmp_path / "tower.onnx"), tmp_path / "tower.json"
    result = CliRunner().invoke(main, ["verify", model, "--write-policy", str(path), "--device", rt.info.id])
    assert result.exit_code == 0, result.output
    assert "with 3 of 5 nodes in fp32" in result.output
    assert "agree on" in result.output
    assert set(PrecisionPolicy.from_json(path.read_text()).fp32) == {"b", "c", "d"}
    result = CliRunner().invoke(main, ["run", model, "--precision", str(path), "--device", rt.info.id])
    assert result.exit_code == 0, result.output
    for bad, said, *more in (
        ("tower.txt", "must end in .json"),
        ("none/p.json", "folder of policy"),
        (str(path), "not for int8", "--precision", "int8"),
    ):
        result = CliRunner().invoke(main, ["verify", model, "--write-policy", bad, *more])
        assert result.exit_code == 1
        assert said in result.output


def test_sums_in_half_need_half_arithmetic(rt: Runtime) -> None:
    x = {"x": noise(2, 3, 17, 13)}
    if not rt.info.half_sums:
        with pytest.raises(DeviceError, match=r"fp16_fast needs half arithmetic.*use fp16 \(half storage"):
            session_of(rt, classifier(), "fp16_fast")
        return
    with session_of(rt, classifier(), "fp32") as wide, session_of(rt, classifier(), "fp16_fast") as half:
        (want,), (got,) = wide.run(None, x), half.run(None, x)
        assert relative_difference(got, want) <= tolerance("model", Precision.FP16_FAST)


def test_a_kept_plan_of_half_is_not_believed_either(rt: Runtime, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    for scale in (1.0, 300.0):  # the second session finds the plan that a harmless input left
        with session_of(rt, towering(16.0), "fp16") as session:
            (got,) = session.run(None, {"x": X["x"] * scale})
            np.testing.assert_allclose(got, X["x"] * scale, rtol=1e-2)
            assert session.overflowed == (scale > 1)


def test_plans_by_policy_are_kept_apart(rt: Runtime, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    for kept in ({}, {"a": "for the test"}, {}):
        with session_of(rt, towering(1.0), PrecisionPolicy(Precision.FP16, kept)) as session:
            session.run(None, X)
            (a,) = (n for n in session.explain().nodes if n.op == "Conv" and n.name == "a")
            assert ("f16" in a.places[0]) == (not kept)


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept plan"])
def test_a_models_own_halves_that_overflow_are_stored_as_floats(
    rt: Runtime, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On GPUs, which store fp16 values as they are; CPUs never do. onnxruntime on CPUs computes them in float, too."""
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1" if kept else "0")
    monkeypatch.setattr(planner, "set_precision", lambda graph, policy, device: set_precision(graph, policy))
    model = in_float16(towering(16.0))
    for scale in (1.0, 300.0):
        with session_of(rt, model, "fp32") as session, caplog.at_level(logging.WARNING):
            for _ in range(2):
                (got,) = session.run(None, {"x": (X["x"] * scale).astype(np.float16)})
                assert got.dtype == np.float16
                np.testing.assert_allclose(got, X["x"] * scale, rtol=2e-3)
            assert session.overflowed == (scale > 1)
            assert ("own half tensors overflowed" in str(session.explain())) == (scale > 1)
    assert len(caplog.records) == 1


def test_infinities_of_a_half_model_itself_are_its_answer(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "set_precision", lambda graph, policy, device: set_precision(graph, policy))
    node = helper.make_node("Mul", ["x", "k"], ["y"], name="grow")
    half = TensorProto.FLOAT16
    constants = {"k": np.array([300, 1], np.float16)}
    model = make_model([node], [port("x", [2], half)], [port("y", [2], half)], constants)
    with session_of(rt, model, "fp32") as session:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, {"x": np.array([300, 2], np.float16)})[0], [np.inf, 2])
        assert not session.overflowed


def in_float16(model: Any) -> Any:
    """`model` as it is exported in float16."""
    for t in model.graph.initializer:
        t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float16), t.name))
    for v in (*model.graph.input, *model.graph.output):
        v.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


def test_half_storage_keeps_the_bits_that_are_read(rt: Runtime) -> None:
    """The bits of a transposed value are read, and made a float again; halves have 13 bits less."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("BitCast", ["b"], ["i"], to=TensorProto.INT32),
        helper.make_node("BitwiseAnd", ["i", "mask"], ["j"]),
        helper.make_node("BitCast", ["j"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["f", "shape"], ["y"]),
    ]
    constants = {"mask": np.int32(-16), "shape": np.array([-1])}
    outputs = [port("i", [5, 3], TensorProto.INT32), port("y", [15])]
    model = make_model(nodes, [port("x", [3, 5])], outputs, constants, opset=26)
    x = noise(3, 5)
    with session_of(rt, model, "fp16") as session:
        bits, y = session.run(None, {"x": x})
        assert not any(n.target == "host" for n in session.explain().nodes)
    want = np.tanh(x).T
    assert np.abs(bits - want.copy().view(np.int32)).max() <= 16
    np.testing.assert_allclose(y, want.reshape(-1), rtol=4e-6)
    np.testing.assert_array_equal(y.view(np.int32) & 15, 0)
