"""session.run of values inside the model: what onnxruntime gives, by one program for each choice of names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import opalite
from onnx import TensorProto, ValueInfoProto, helper
from opalite.run.api.session.compile_bundle import compile_model

from .....helpers.small_models import classifier, make_model, noise, port
from .....helpers.tflite_files import TfliteFile

MODEL = classifier()
X = {"x": noise(1, 3, 6, 5)}
F = np.float32


def reference(*names: str) -> list[np.ndarray]:
    extended = classifier()
    extended.graph.output.extend(ValueInfoProto(name=n) for n in names if n != "y")
    return onnxruntime.InferenceSession(extended.SerializeToString()).run(list(names), X)


def test_values_that_kernels_fuse_away() -> None:
    with opalite.InferenceSession(MODEL.SerializeToString()) as session:
        (whole,) = session.run(None, X)
        for names in (["a"], ["c", "b"], ["y", "e"]):
            got = session.run(names, X)
            for g, w in zip(got, reference(*names), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(asyncio.run(session.arun(["a", "y"], X))[1], whole)
        assert session.get_outputs()[0].name == "y"
        assert len(session.get_outputs()) == 1


def test_a_choice_of_names_is_planned_once() -> None:
    with opalite.InferenceSession(MODEL.SerializeToString()) as session:
        for _ in range(3):
            session.run(["a"], X)
        inner = session._inner_values
        assert inner is not None
        (own,) = inner._sessions.values()
        assert own.stats().to_raw()["runs"] == 3
        for name in "bcdef":
            session.run([name], X)
        assert len(inner._sessions) == 4, "the least recently used are closed"
    assert not inner._sessions


def test_halves_are_stored_as_in_the_session() -> None:
    with opalite.InferenceSession(MODEL.SerializeToString(), precision="fp16") as session:
        (got,) = session.run(["b"], X)
    np.testing.assert_allclose(got, reference("b")[0], rtol=1e-2, atol=1e-2)
    assert got.dtype == F


def test_names_that_are_no_values(tmp_path: Path) -> None:
    with opalite.InferenceSession(MODEL.SerializeToString()) as session:
        with pytest.raises(opalite.InputError, match="no output is named 'conv1', nor any other value"):
            session.run(["conv1"], X)
        with pytest.raises(opalite.InputError, match="a list such as"):
            session.run("ay", X)
    bundle = tmp_path / "m.opal"
    compile_model(MODEL.SerializeToString(), bundle, shapes={"x": (1, 3, 6, 5)})
    with (
        opalite.InferenceSession(bundle) as compiled,
        pytest.raises(opalite.InputError, match="run the model's own file"),
    ):
        compiled.run(["a"], X)


def test_values_in_a_body_are_refused_in_words() -> None:
    def branch(op: str) -> object:
        return helper.make_graph([helper.make_node(op, ["x"], [f"in_{op}"])], op, [], [port(f"in_{op}", [2])])

    node = helper.make_node("If", ["c"], ["r"], then_branch=branch("Neg"), else_branch=branch("Abs"))
    nodes = [node, helper.make_node("Exp", ["r"], ["y"])]
    model = make_model(nodes, [port("c", [], TensorProto.BOOL), port("x", [2])], [port("y", [2])])
    feeds = {"c": np.array(True), "x": np.array([1, 2], F)}
    with opalite.InferenceSession(model.SerializeToString()) as session:
        np.testing.assert_array_equal(session.run(["r"], feeds)[0], [-1, -2])
        with pytest.raises(opalite.InputError, match="a value in the body of an If"):
            session.run(["in_Neg"], feeds)


def test_a_value_of_a_tflite_file() -> None:
    pytest.importorskip("tflite", reason="the extra opalite-cl[tflite] is not installed")
    file = TfliteFile()
    x = file.main.input(F, (2, 3), "x")
    h, y = file.main.tensor(F, (2, 3), "h"), file.main.tensor(F, (2, 3), "y")
    file.main.op("NEG", [x], [h])
    file.main.op("EXP", [h], [y])
    file.main.output(y)
    with opalite.InferenceSession(file.bytes()) as session:
        given = noise(2, 3)
        np.testing.assert_array_equal(session.run(["h"], {"x": given})[0], -given)
        with pytest.raises(opalite.InputError, match="no output is named 'q'"):
            session.run(["q"], {"x": given})
