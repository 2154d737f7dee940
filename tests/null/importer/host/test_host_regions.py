"""MaxRoiPool against onnxruntime, which onnx's reference implementations lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

from opalite.errors import ShapeError
from opalite.importer.host.reference import run_host
from tests.null.ops.oracles import by_ort

rng = np.random.default_rng(5)
X = rng.standard_normal((3, 2, 11, 13)).astype(np.float32)


def ours(regions: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    node = oh.make_node("MaxRoiPool", ["x0", "x1"], ["y0"], **attrs).SerializeToString()
    found: np.ndarray[Any, Any] = run_host("MaxRoiPool", "", 17, node, [X, regions])[0]
    return found


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.37])
@pytest.mark.parametrize("shape", [[2, 3], [5, 4], [1, 1]])
def test_is_onnxruntimes(shape: list[int], scale: float) -> None:
    corners = rng.uniform(-6, 30, (40, 4)).round(1)  # also beyond the image, and with ends before starts
    regions = np.concatenate([rng.integers(0, 3, (40, 1)), corners], 1).astype(np.float32)
    (want,) = by_ort("MaxRoiPool", [X, regions], opset=17, pooled_shape=shape, spatial_scale=scale)
    np.testing.assert_array_equal(ours(regions, pooled_shape=shape, spatial_scale=scale), want)


def test_no_regions() -> None:
    assert ours(np.zeros((0, 5), np.float32), pooled_shape=[2, 2]).shape == (0, 2, 2, 2)


@pytest.mark.parametrize(
    "regions, words", [([[0, 1, 2, 3]], "regions.R,5"), ([[3, 0, 0, 1, 1]], "image 3, but x has 3")]
)
def test_refusals(regions: list[list[float]], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        ours(np.array(regions, np.float32), pooled_shape=[2, 2])
