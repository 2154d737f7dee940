"""A plan that was made for large pictures serves pictures smaller than its kernels' tiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnx
import opalite
from onnx import helper
from opalite.cl.runtime import Runtime

from ....helpers.counters import settled
from ....helpers.small_models import make_model, noise, port

FIRST = (2, 3, 72, 64)
OTHERS = [(2, 3, 2, 2), (3, 3, 3, 9), (2, 3, 16, 5), (2, 3, 90, 70), (4, 3, 6, 4)]


def convolutions() -> Any:
    """Pointwise, and 3x3 of few and of many channels: [n, 3, h, w] to [n, 16, h, w]."""
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "deep", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Mul", ["c", "d"], ["e"]),
        helper.make_node("Conv", ["e", "wide"], ["f"], pads=[0, 1, 0, 1]),
        helper.make_node("Conv", ["f", "last", "few"], ["y"]),
    ]
    constants = {"stem": noise(64, 3, 3, 3), "deep": noise(64, 64, 3, 3, seed=1), "wide": noise(32, 64, 1, 3, seed=2)}
    constants |= {"last": noise(16, 32, 1, 1, seed=3), "bias": noise(64, seed=4), "few": noise(16, seed=5)}
    scaled = {name: a / np.sqrt(a[0].size).astype(np.float32) for name, a in constants.items()}
    return make_model(nodes, [port("x", ("n", 3, "h", "w"))], [port("y", None)], scaled)


def tokens() -> Any:
    """Positions as rows, as detectors give them: [n, 3, h, w] to [n, h * w, 32], and scaled by means of channels."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMean", ["a", "axes"], ["m"], keepdims=1),
        helper.make_node("Mul", ["a", "m"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("Sigmoid", ["d"], ["y"]),
    ]
    constants = {"w": noise(32, 3, 3, 3), "axes": np.array([2, 3]), "shape": np.array([0, -1, 32])}
    return make_model(nodes, [port("x", ("n", 3, "h", "w"))], [port("y", None)], constants)


def halved() -> Any:
    """Two poolings, after which small pictures have one position: [n, 3, h, w] to [n, 16, h / 4, w / 4]."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        helper.make_node("BatchNormalization", ["b", "scale", "shift", "mean", "variance"], ["c"]),
        helper.make_node("Conv", ["c", "u"], ["d"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["d", "scale", "shift", "mean", "variance"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Add", ["f", "d"], ["y"]),
    ]
    constants = {"w": noise(16, 3, 3, 3), "u": noise(16, 16, 3, 3, seed=1), "scale": noise(16, seed=2)}
    constants |= {"shift": noise(16, seed=3), "mean": noise(16, seed=4), "variance": np.abs(noise(16, seed=5)) + 1}
    return make_model(nodes, [port("x", ("n", 3, "h", "w"))], [port("y", None)], constants)


@pytest.mark.parametrize("build", [convolutions, tokens, halved])
def test_one_plan_serves_sizes_below_a_tile(
    build: Callable[[], Any], rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPALITE_SYMBOLS", raising=False)
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    path = tmp_path / "model.onnx"
    onnx.save(build(), path)
    reference = ReferenceEvaluator(onnx.load(path))
    session = opalite.InferenceSession(path, device=rt.info.id)
    session.run(None, {"x": noise(*FIRST)})
    session.settle()  # the kernels made for the model, and not the general ones
    before = settled(rt)
    for shape in [*OTHERS, FIRST]:
        x = noise(*shape, seed=sum(shape))
        (found,), (wanted,) = session.run(None, {"x": x}), reference.run(None, {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max(), err_msg=str(shape))
    assert session.last_trace.tier == "optimized"
    assert (rt.counters.snapshot() - before).programs_built == 0
    assert session.stats().plans_made <= 2  # one of each tier
