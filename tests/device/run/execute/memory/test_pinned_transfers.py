"""Runs on arrays of devices that copy memory: through pinned memory, and to pinned arrays that nothing overwrites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime

from .....helpers.small_models import make_model, noise, port

LARGE = (1, 8, 64, 64)


def copying(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the device copy memory, as one with its own does."""
    monkeypatch.setattr(Runtime, "copies_memory", True)
    monkeypatch.setitem(rt.__dict__, "shares_memory", False)
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")


def session_of(rt: Runtime) -> opalite.InferenceSession:
    """A large output, a small one, and one that the host reads before it is returned."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["large"], pads=[1] * 4),
        helper.make_node("ReduceMean", ["large"], ["small"], axes=[2, 3]),
        helper.make_node("Relu", ["small"], ["other"]),
    ]
    outputs = [port("large", LARGE), port("small", None), port("other", None)]
    model = make_model(nodes, [port("x", (1, 3, 64, 64))], outputs, {"w": noise(8, 3, 3, 3)}, opset=13)
    return opalite.InferenceSession(model.SerializeToString(), device=rt.info.id, precision="fp32")


def test_results_stay(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [{"x": noise(1, 3, 64, 64, seed=i)} for i in range(4)]
    plain = session_of(rt)
    plain.run(None, feeds[0])
    plain.settle()
    wanted = [[np.array(a) for a in plain.run(None, f)] for f in feeds]
    copying(rt, monkeypatch)
    session = session_of(rt)
    session.run(None, feeds[0])
    session.settle()
    kept: list[Any] = []
    for _ in range(2):
        kept += [session.run(None, f) for f in feeds]
    for got, want in zip(kept, wanted * 2, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
    large = kept[0][0]
    assert large.base is not None
    assert large.flags.writeable
    large += 1
    np.testing.assert_array_equal(kept[4][0], wanted[0][0])


def test_other_types_and_layouts_go_through_pinned_memory(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    copying(rt, monkeypatch)
    session = session_of(rt)
    x = noise(1, 3, 64, 64)
    want = session.run(None, {"x": x})
    turned = np.asfortranarray(x)
    for a, b in zip(session.run(None, {"x": turned}), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
