"""Sizes whose expressions would grow with every layer: imports stay short, and results are right for each size."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from ....helpers.growing_sizes import CHAINS, same_padding, size_chain
from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import by_onnxruntime

_SECONDS = 20.0
"""Of processors: an import of expressions without bounds ends by the memory there is."""


def _check(model: Any, shapes: list[tuple[int, ...]]) -> NumpySession:
    session = NumpySession(model, symbols=True)
    for shape in shapes:
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        wanted = by_onnxruntime(model, {"x": x})
        started = time.process_time()
        found = session.run({"x": x})
        assert time.process_time() - started < _SECONDS
        for f, w in zip(found, wanted, strict=True):
            assert f.shape == w.shape
            np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-5)
    return session


@pytest.mark.parametrize("kind", CHAINS)
def test_chains_of_sizes(kind: str) -> None:
    session = _check(size_chain(kind), [(7, 5), (12, 9), (7, 9), (30, 41), (31, 41), (7, 5)])
    assert len(session.imported) <= 5


def test_same_padding_is_one_segment() -> None:
    shapes = [(2, 3, 97, 130), (2, 3, 96, 128), (3, 3, 61, 77), (2, 3, 200, 131)]
    session = _check(same_padding(), shapes)
    assert len(session.imported) == 1
    assert all(len(s.graph.trace.guards) < 20 for s in session.imported)
