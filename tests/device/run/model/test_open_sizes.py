"""One executable, one kept plan and one bundle serve all sizes of a model with open dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import BundleError
from opalite.run.model.cached_model import CachedModel

from ....helpers.small_models import classifier, noise

SHAPES = [(2, 3, 8, 8), (3, 3, 8, 10), (2, 3, 12, 8), (5, 3, 14, 16), (2, 3, 8, 8)]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    monkeypatch.setenv("OPALITE_PLANS", "1")
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
        patch.setenv("OPALITE_PLANS", "0")
        session = opalite.InferenceSession(model, device=rt.info.id)
        session.run(None, {"x": noise(*SHAPES[0])})
    return session


def test_one_executable_and_one_plan_serve_sizes(model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = alone_of(model, rt, monkeypatch)
    session = opalite.InferenceSession(model, device=rt.info.id)
    for shape in SHAPES:
        check(session, alone, shape)
    assert isinstance(session._model, CachedModel)
    assert session._model._onnx is not None
    kept = session._model._onnx.executables.all
    assert len(kept) < len(set(SHAPES))
    assert any(c.template is not None and len(c._made) > 1 for c in kept)
    told = str(session.explain({"x": noise(*SHAPES[0])}))
    assert "sizes: s0=2 (axis 0 of 'x' (N)), s1=8" in told
    assert "this plan serves others for which" in told
    session.settle()
    again = opalite.InferenceSession(model, device=rt.info.id)
    check(again, alone, SHAPES[0])
    check(again, alone, (7, 3, 8, 8))  # a size that no plan was made for
    assert isinstance(again._model, CachedModel)
    assert again._model._onnx is None, "another plan was made"


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
            monkeypatch.setattr("opalite.run.model.cached_model.tuning_stamp", lambda stamp=stamp: stamp)
        session = opalite.InferenceSession(model, device=rt.info.id)
        session.run(None, {"x": noise(*SHAPES[0])})
        assert isinstance(session._model, CachedModel)
        assert session._model._onnx is None
        session.run(None, {"x": noise(7, 3, 8, 8)})
        assert (session._model._onnx is not None) == imports
