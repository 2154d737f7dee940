"""RoiAlign's reference against onnxruntime."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_ort, ours

rng = np.random.default_rng(5)
X = rng.standard_normal((2, 3, 13, 17)).astype(np.float32)
REGIONS = np.array(
    [
        *([0, 0, 10, 10], [1, 2, 3, 3.5], [-5, -7, 30, 40], [3, 3, 3, 3], [0.5, 0.25, 7.75, 14], [0, 0, 14, 7]),
        *([100, 100, 200, 200], [-9, -9, -5, -5], [2, 2, 9.000001, 9.000001], [16, 12, 17, 13], [-1, -1, 0, 0]),
    ],
    np.float32,
)
IMAGES = rng.integers(0, 2, len(REGIONS))


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_as_onnxruntime(mode: str, coordinates: str, ratio: int) -> None:
    for scale, (rows, columns) in product((1.0, 0.5), ((7, 7), (2, 3), (1, 1))):
        named = {"output_height": rows, "output_width": columns, "coordinate_transformation_mode": coordinates}
        named |= {"sampling_ratio": ratio, "spatial_scale": scale, "mode": mode}
        (want,) = by_ort("RoiAlign", [X, REGIONS, IMAGES], opset=16, **named)
        attrs = {"rows": rows, "columns": columns, "ratio": ratio, "scale": scale}
        half_pixel = coordinates == "half_pixel"
        (got,) = ours("RoiAlign", [X, REGIONS, IMAGES], **attrs, half_pixel=half_pixel, maximum=mode == "max")
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("x", "regions", "images", "why"),
    [
        ((2, 3, 13), (5, 4), (5,), r"x must be \[N,C,H,W\]"),
        ((2, 3, 0, 4), (5, 4), (5,), "not empty"),
        ((2, 3, 4, 4), (5, 3), (5,), r"regions must be \[R,4\]"),
        ((2, 3, 4, 4), (5, 4), (6,), "a number for each"),
    ],
)
def test_what_does_not_fit_is_refused(
    x: tuple[int, ...], regions: tuple[int, ...], images: tuple[int, ...], why: str
) -> None:
    attrs = {"rows": 2, "columns": 2, "ratio": 0, "scale": 1.0, "half_pixel": True, "maximum": False}
    floats = [TensorType(DType.FLOAT32, s) for s in (x, regions)]
    with pytest.raises(ShapeError, match=why):
        make_op("RoiAlign", attrs).check_shape([*floats, TensorType(DType.INT64, images)])
