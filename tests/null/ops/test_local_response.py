"""LocalResponseNorm's reference against onnxruntime, onnx's reference evaluator and the formula itself."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_onnx, by_ort, ours

rng = np.random.default_rng(43)
ATTRS = {"alpha": 0.3, "beta": 0.75, "bias": 1.5}


@pytest.mark.parametrize("size", [1, 3, 5, 13, 31])
def test_odd_sizes(size: int) -> None:
    x = rng.standard_normal((2, 13, 5, 3)).astype(np.float32)
    (want,) = by_ort("LRN", [x], opset=13, size=size, **ATTRS)
    np.testing.assert_allclose(ours("LocalResponseNorm", [x], size=size, **ATTRS)[0], want, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 4, 6, 14])
def test_even_sizes(size: int) -> None:
    """As many images as channels: onnx's evaluator computes no more channels than there are images."""
    x = rng.standard_normal((7, 7, 3, 2)).astype(np.float32)
    (want,) = by_onnx("LRN", [x], opset=13, size=size, **ATTRS)
    np.testing.assert_allclose(ours("LocalResponseNorm", [x], size=size, **ATTRS)[0], want, rtol=1e-5)


def test_any_rank() -> None:
    x = rng.standard_normal((3, 4))
    (got,) = ours("LocalResponseNorm", [x], size=2, **ATTRS)
    sums = np.stack([(x[:, c : c + 2] ** 2).sum(1) for c in range(4)], 1)
    np.testing.assert_allclose(got, x / (1.5 + 0.15 * sums) ** 0.75)
    (deep,) = ours("LocalResponseNorm", [x[:, :, None, None, None]], size=2, **ATTRS)
    np.testing.assert_array_equal(deep[..., 0, 0, 0], got)


def test_halves_are_computed_in_float() -> None:
    """Squares of 300 are beyond half."""
    (got,) = ours("LocalResponseNorm", [np.full((1, 3, 2), 300, np.float16)], size=1, alpha=1.0, beta=0.5, bias=0.0)
    np.testing.assert_array_equal(got, np.ones((1, 3, 2), np.float16))


def test_refusals() -> None:
    op = make_op("LocalResponseNorm", {"size": 5, **ATTRS})
    with pytest.raises(ShapeError, match=r"x must be \[N,C"):
        op.check_shape([TensorType(DType.FLOAT32, (3,))])
    with pytest.raises(ShapeError, match="hold floats"):
        op.check_shape([TensorType(DType.INT32, (3, 3))])
    with pytest.raises(ShapeError, match="size must be at least 1"):
        make_op("LocalResponseNorm", {"size": 0, **ATTRS}).check_shape([TensorType(DType.FLOAT32, (3, 3))])
