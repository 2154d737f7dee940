"""GridSample's reference against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.grid_sample import PADDINGS
from opalite.ops.operator import make_op

from .oracles import by_onnx, by_ort, ours

rng = np.random.default_rng(19)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("spatial, points", [((5, 7), (3, 11)), ((1, 2), (4, 4)), ((3, 5, 4), (2, 3, 5))])
def test_against_onnxruntime(
    spatial: tuple[int, ...], points: tuple[int, ...], mode: str, padding: str, corners: bool
) -> None:
    if mode == "cubic" and len(spatial) == 3:
        pytest.skip("onnxruntime has no cubic sampling of volumes")
    x = rng.standard_normal((2, 3, *spatial)).astype(np.float32)
    grid = rng.uniform(-2.2, 2.2, (2, *points, len(spatial))).astype(np.float32)
    (want,) = by_ort("GridSample", [x, grid], opset=20, mode=mode, padding_mode=padding, align_corners=int(corners))
    (got,) = ours("GridSample", [x, grid], mode=mode, padding=padding, align_corners=corners)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_cubic_of_a_volume() -> None:
    x = rng.standard_normal((1, 2, 3, 5, 4)).astype(np.float32)
    grid = rng.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(np.float32)
    (want,) = by_onnx("GridSample", [x, grid], opset=20, mode="cubic", padding_mode="zeros", align_corners=0)
    (got,) = ours("GridSample", [x, grid], mode="cubic", padding="zeros", align_corners=False)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


@pytest.mark.parametrize("padding", PADDINGS)
def test_no_position_is_too_far(padding: str) -> None:
    x = np.ones((1, 1, 3, 3), np.float32)
    grid = np.array([-1e30, np.inf, -np.inf, 1e30], np.float32).reshape(1, 1, 2, 2)
    (got,) = ours("GridSample", [x, grid], mode="linear", padding=padding, align_corners=False)
    np.testing.assert_array_equal(got, 0 if padding == "zeros" else 1)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("corners", [False, True])
def test_nan_counts_as_the_first_end(mode: str, padding: str, corners: bool) -> None:
    """As PyTorch documents it; the positions of a single row are 0/0 in exported linspaces."""
    x = rng.standard_normal((1, 2, 3, 4)).astype(np.float32)
    grid = np.array([[np.nan, 0.2], [-0.4, np.nan], [np.nan, np.nan]], np.float32).reshape(1, 1, 3, 2)
    attrs = {"mode": mode, "padding": padding, "align_corners": corners}
    (got,) = ours("GridSample", [x, grid], **attrs)
    (want,) = ours("GridSample", [x, np.nan_to_num(grid, nan=-1.0)], **attrs)
    np.testing.assert_array_equal(got, want)
    named = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    np.testing.assert_allclose(got, by_ort("GridSample", [x, grid], opset=20, **named)[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "x, grid, changed, words",
    [
        ((1, 2, 3), (1, 3, 1), {}, "x must be"),
        ((1, 2, 3, 3), (1, 3, 3, 3), {}, "end in 2"),
        ((1, 2, 3, 3), (2, 3, 3, 2), {}, "batch size"),
        ((1, 2, 3, 3), (1, 3, 3, 2), {"mode": "area"}, "mode must"),
        ((1, 2, 3, 3), (1, 3, 3, 2), {"padding": "wrap"}, "padding must"),
        ((1, 2, 0, 3), (1, 3, 3, 2), {}, "empty"),
    ],
)
def test_refusals(x: tuple[int, ...], grid: tuple[int, ...], changed: dict[str, Any], words: str) -> None:
    attrs = {"mode": "linear", "padding": "zeros", "align_corners": False} | changed
    with pytest.raises(ShapeError, match=words):
        make_op("GridSample", attrs).check_shape([TensorType(DType.FLOAT32, x), TensorType(DType.FLOAT32, grid)])
