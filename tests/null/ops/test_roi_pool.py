"""RoiPool's reference against onnxruntime's MaxRoiPool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_ort

rng = np.random.default_rng(5)
X = rng.standard_normal((3, 2, 11, 13)).astype(np.float32)


def ours(regions: Any, pooled_shape: list[int], spatial_scale: float = 1.0) -> np.ndarray[Any, Any]:
    attrs = {"rows": pooled_shape[0], "columns": pooled_shape[1], "scale": spatial_scale}
    found: np.ndarray[Any, Any] = make_op("RoiPool", attrs).reference([X, regions])[0]
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


@pytest.mark.parametrize("regions", [[[0, 1, 2, 3]], [0, 1, 2, 3, 4]])
def test_refusals(regions: Any) -> None:
    with pytest.raises(ShapeError, match=r"regions must be .R,5."):
        make_op("RoiPool", {"rows": 2, "columns": 2, "scale": 1.0}).check_shape(
            [TensorType(DType.FLOAT32, np.shape(a)) for a in (X, np.array(regions))]
        )
