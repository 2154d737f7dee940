"""What is not finite in one group of a convolution stays there, but for blocks of channels that two groups share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper, numpy_helper

RNG = np.random.default_rng(5)


def convolution(groups: int, channels: int, filters: int, kernel: int) -> Any:
    """A grouped convolution of [1, channels, 7, 7] with pads that keep the size."""
    w = RNG.standard_normal((filters, channels // groups, kernel, kernel)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups, pads=[kernel // 2] * 4)
    x = helper.make_tensor_value_info("x", 1, [1, channels, 7, 7])
    y = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def bad_channels(model: Any, channels: int, at: int, value: float) -> np.ndarray[Any, Any]:
    """Which output channels are not finite where one element of channel `at` is `value`."""
    x = RNG.standard_normal((1, channels, 7, 7)).astype(np.float32)
    x[0, at, 2, 3] = value
    y = opalite.InferenceSession(model.SerializeToString(), precision="fp32").run(None, {"x": x})[0]
    return np.flatnonzero(~np.isfinite(y).all((0, 2, 3)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("groups", "channels", "filters", "kernel"), [(3, 240, 240, 1), (8, 48, 48, 3), (2, 64, 32, 1)]
)
def test_other_groups_are_not_touched(
    monkeypatch: pytest.MonkeyPatch, groups: int, channels: int, filters: int, kernel: int, value: float
) -> None:
    """Groups that fill blocks of 16, or are computed row by row."""
    if filters // groups % 16:
        monkeypatch.setenv("OPALITE_EXCLUDE_KERNELS", "ConvRowMajorToPacked,ConvPacked,ConvPointwise")
    found = bad_channels(convolution(groups, channels, filters, kernel), channels, 1, value)
    assert found.tolist() == list(range(filters // groups))


@pytest.mark.parametrize("at", [1, 100, 239])
def test_a_shared_block_is_the_most_that_is_touched(at: int) -> None:
    """Groups of 20 filters share blocks of channels: zeros of the filters meet the other group's inputs there
    (docs/precision.md). No channel beyond those blocks is touched, and every channel of the group is."""
    found = set(bad_channels(convolution(3, 240, 60, 1), 240, at, np.nan).tolist())
    first = at // 80 * 20
    own = set(range(first, first + 20))
    widest = 64  # channels of the widest tile: four blocks of 16
    assert own <= found
    assert all(first - widest < c < first + 20 + widest for c in found)


def test_other_kernels_keep_groups_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_EXCLUDE_KERNELS", "ConvRowMajorToPacked,ConvPacked,ConvPointwise")
    found = bad_channels(convolution(3, 240, 60, 1), 240, 1, np.nan)
    assert found.tolist() == list(range(20))
