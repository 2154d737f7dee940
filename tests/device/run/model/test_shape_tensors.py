"""Positions and masks that follow from sizes: on the device, in steady runs, and from plans in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime

from ....helpers.numpy_session import NumpySession
from ....null.importer.walk.test_open_models import decoder, decoder_feeds


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("opalite.ir.plugins._listings", [])
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    model = tmp_path / "decoder.onnx"
    model.write_bytes(decoder().SerializeToString())
    return model


def check(session: opalite.InferenceSession, lengths: tuple[int, ...], twice: int = 2) -> None:
    plain = NumpySession(decoder(), symbols=False)
    for past in lengths:
        feeds = decoder_feeds(1, 1, past)
        for _ in range(twice):  # the second run is a steady one
            for got, want in zip(session.run(None, feeds), plain.run(feeds), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_a_token_more_is_computed_by_what_is_there(path: Path, rt: Runtime) -> None:
    session = opalite.InferenceSession(path, device=rt.info.id)
    check(session, (5, 6, 7, 20, 5))


def test_a_kept_plan_makes_what_follows_from_sizes(path: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = opalite.SessionOptions()
    copies.add_session_config_entry("opalite.cache_views", "0")  # caches in place have plans of their own
    first = opalite.InferenceSession(path, copies, device=rt.info.id)
    check(first, (5,), 1)
    first.settle()

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("the kept plan serves every length")

    monkeypatch.setattr("opalite.run.model.imported_model.load_model", refuse)
    check(opalite.InferenceSession(path, copies, device=rt.info.id), (5, 9, 6, 17))
