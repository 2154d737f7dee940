"""RotaryEmbedding's reference against onnxruntime, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.rotary_embedding import RotaryEmbedding

from .oracles import by_ort, ours

rng = np.random.default_rng(31)


@pytest.mark.parametrize("perm", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_rows_are_turned(perm: tuple[int, int, int, int]) -> None:
    x = rng.standard_normal((2, 3, 5, 8)).astype(np.float32)
    turned = x.transpose(perm)
    angles = rng.uniform(-3, 3, (2, turned.shape[2], 4)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    (want,) = by_ort("RotaryEmbedding", [turned, cos, sin], opset=23)
    for c, s in ((cos, sin), (np.tile(cos, 2), np.tile(sin, 2))):  # columns of half a row, and of a row
        (got,) = ours("RotaryEmbedding", [x, c[:, None], s[:, None]], perm=perm)
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize(
    "shapes, perm, message",
    [
        (((2, 3, 8), (3, 4), (3, 4)), (0, 1, 2, 3), "rank 4"),
        (((1, 2, 3, 7), (3, 3), (3, 3)), (0, 1, 2, 3), "even number"),
        (((1, 2, 3, 8), (3, 2), (3, 2)), (0, 1, 2, 3), "4 or 8 columns"),
        (((1, 2, 3, 8), (3, 4), (1, 4)), (0, 1, 2, 3), "4 or 8 columns"),
        (((1, 2, 3, 8), (5, 4), (5, 4)), (0, 1, 2, 3), "."),
        (((1, 2, 1, 8), (3, 4), (3, 4)), (0, 1, 2, 3), "do not fit"),
        (((1, 2, 3, 8), (3, 4), (3, 4)), (0, 1, 3, 2), "moves elements"),
    ],
)
def test_what_does_not_fit(shapes: Any, perm: Any, message: str) -> None:
    ins = [TensorType(DType.FLOAT32, s) for s in shapes]
    with pytest.raises(ShapeError, match=message):
        RotaryEmbedding(perm).check_shape(ins)


def test_types_must_agree() -> None:
    ins = [TensorType(t, (1, 1, 1, 2)) for t in (DType.FLOAT32, DType.FLOAT16, DType.FLOAT32)]
    with pytest.raises(ShapeError, match="must be as x"):
        RotaryEmbedding().check_shape(ins)
