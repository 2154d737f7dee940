"""One executable, one kept plan and one bundle serve all sizes of a model with open dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.errors import BundleError
from opalite.run.model.onnx_model import OnnxModel

from ....helpers.onnx_text import by_onnxruntime
from ....helpers.small_models import classifier, make_model, noise, port

SHAPES = [(2, 3, 8, 8), (3, 3, 8, 10), (2, 3, 12, 8), (5, 3, 14, 16), (2, 3, 8, 8)]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "classifier.onnx"
    path.write_bytes(classifier().SerializeToString())
    return path


def check(session: opalite.InferenceSession, alone: opalite.InferenceSession, shape: tuple[int, ...]) -> None:
    feeds = {"x": noise(*shape, seed=sum(shape))}
    (wanted,) = alone.run(None, feeds)
    (found,) = session.run(None, feeds)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-6)


def alone_of(model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> opalite.InferenceSession:
    """A session that imports each shape by itself."""
    with monkeypatch.context() as patch:
        patch.setenv("OPALITE_SYMBOLS", "0")
        patch.setenv("OPALITE_PLAN_CACHE", "0")
        session = opalite.InferenceSession(model, device=rt.info.id)
        session.run(None, {"x": noise(*SHAPES[0])})
    return session


def test_one_executable_and_one_plan_serve_sizes(model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = alone_of(model, rt, monkeypatch)
    session = opalite.InferenceSession(model, device=rt.info.id)
    for shape in SHAPES:
        check(session, alone, shape)
    assert isinstance(session._model, OnnxModel)
    assert session._model.is_imported
    kept = session._model.imported().executables.all
    assert len(kept) < len(set(SHAPES))
    assert any(c.template is not None and len(c._made) > 1 for c in kept)
    told = str(session.explain({"x": noise(*SHAPES[0])}))
    assert "sizes: s0=2 (axis 0 of 'x' (N)), s1=8" in told
    assert "this plan serves others for which" in told
    session.settle()
    again = opalite.InferenceSession(model, device=rt.info.id)
    check(again, alone, SHAPES[0])
    check(again, alone, (7, 3, 8, 8))  # a size that no plan was made for
    assert isinstance(again._model, OnnxModel)
    assert not again._model.is_imported, "another plan was made"


def test_a_bundle_serves_sizes_for_which_its_guards_hold(
    model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = alone_of(model, rt, monkeypatch)
    path = model.with_suffix(".opal")
    opalite.compile(model, path, shapes={"x": SHAPES[0]}, device=rt.info.id)
    session = opalite.InferenceSession(path, device=rt.info.id)
    check(session, alone, SHAPES[0])
    check(session, alone, (7, 3, 8, 8))
    with pytest.raises(BundleError, match=r"compiled for shapes x:s0x3x.*got x:1x3x8x8"):
        session.run(None, {"x": noise(1, 3, 8, 8)})  # 0 and 1 are no symbols


def test_what_was_tuned_since_is_asked_for_at_other_sizes(
    model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that was made before some tuning serves the sizes that it was made for, and no others unasked."""
    first = opalite.InferenceSession(model, device=rt.info.id)
    first.run(None, {"x": noise(*SHAPES[0])})
    first.settle()
    for stamp, imports in ((None, False), ("tuned since", True)):
        if stamp is not None:
            monkeypatch.setattr("opalite.run.model.plans.plan_store.tuning_stamp", lambda stamp=stamp: stamp)
        session = opalite.InferenceSession(model, device=rt.info.id)
        session.run(None, {"x": noise(*SHAPES[0])})
        assert isinstance(session._model, OnnxModel)
        assert not session._model.is_imported
        session.run(None, {"x": noise(7, 3, 8, 8)})
        assert (session._model.is_imported) == imports


def looked_up() -> Any:
    """The best half of the rows, at most 20, padded to a multiple of 8 and cut to their number again."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Squeeze", ["scores", "two"], ["flat"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["rows"]),
        helper.make_node("Div", ["rows", "half"], ["most"]),
        helper.make_node("Min", ["most", "twenty"], ["k"]),
        helper.make_node("TopK", ["flat", "k"], ["best", "at"], axis=1),
        helper.make_node("Unsqueeze", ["at", "two"], ["columns"]),
        helper.make_node("Expand", ["columns", "wide"], ["places"]),
        helper.make_node("GatherElements", ["x", "places"], ["taken"], axis=1),
        helper.make_node("Mod", ["k", "eight"], ["over"]),
        helper.make_node("Sub", ["eight", "over"], ["lacking"]),
        helper.make_node("Mod", ["lacking", "eight"], ["more"]),
        helper.make_node("Concat", ["four_zeros", "more", "zero"], ["pads"], axis=0),
        helper.make_node("Pad", ["taken", "pads"], ["padded"]),
        helper.make_node("Tanh", ["padded"], ["bent"]),
        helper.make_node("Slice", ["bent", "zero", "k", "one"], ["y"]),
    ]
    given = {"two": [2], "one": [1], "half": [2], "twenty": [20], "wide": [1, 1, 16], "eight": [8], "zero": [0]}
    constants = {n: np.array(v, np.int64) for n, v in {**given, "four_zeros": [0] * 4}.items()}
    return make_model(nodes, [port("x", ["n", "s", 16])], [port("y", None)], {**constants, "w": noise(16, 1)})


def test_lookups_and_pads_of_computed_sizes_take_few_plans(
    model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = looked_up()
    session = opalite.InferenceSession(contents.SerializeToString(), device=rt.info.id)
    rng = np.random.default_rng(1)
    for i in range(16):
        x = noise(int(rng.integers(2, 5)), int(rng.integers(4, 90)), 16, seed=i)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], by_onnxruntime(contents, {"x": x})[0], atol=1e-5)
    most = 2 if rt.info.is_cpu else 6  # on a GPU a group sorts 1, 2, 4, 8, 16 or 32 places
    assert session.stats().plans_made <= most, str(session.explain({"x": x}))
