"""Models whose sizes are long expressions: they are planned in seconds, few times, and right at each size."""

from __future__ import annotations

import time

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime

from ....helpers.growing_sizes import CHAINS, same_padding, size_chain
from ....helpers.onnx_text import by_onnxruntime
from ....helpers.small_models import noise


def test_same_padding_of_three_sizes_takes_one_plan(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    model = same_padding()
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id)
    for shape in ((2, 3, 97, 130), (3, 3, 60, 128), (2, 3, 141, 77)):
        x = noise(*shape, seed=shape[2])
        started = time.process_time()
        (found,) = session.run(None, {"x": x})
        assert time.process_time() - started < 60, "of processors, in which programs are built too"
        np.testing.assert_allclose(found, by_onnxruntime(model, {"x": x})[0], rtol=1e-3, atol=1e-4)
    assert session.stats().plans_made == 1, str(session.explain({"x": x}))


@pytest.mark.parametrize("kind", CHAINS)
def test_chains_of_sizes_are_right_at_each_size(kind: str, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    model = size_chain(kind)
    session = opalite.InferenceSession(model.SerializeToString(), device=rt.info.id)
    for shape in ((30, 41), (12, 9), (31, 41), (30, 41)):
        x = noise(*shape, seed=sum(shape))
        for found, wanted in zip(session.run(None, {"x": x}), by_onnxruntime(model, {"x": x}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
