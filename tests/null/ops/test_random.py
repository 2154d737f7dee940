"""Random's reference: the generator's published vectors, distributions, reproducibility."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op
from opalite.ops.random import philox

Array = np.ndarray[Any, Any]


def attrs_of(kind: str, shape: tuple[int, ...], **changed: Any) -> dict[str, Any]:
    found = {"kind": kind, "shape": shape, "low": 0.0, "high": 1.0, "mean": 0.0, "scale": 1.0, "seed": 7}
    return found | {"dtype": DType.FLOAT32} | changed


def draw(attrs: dict[str, Any], *arrays: Array) -> Array:
    op = make_op("Random", attrs)
    types = [TensorType(DType.of(a), a.shape) for a in arrays]
    op.check_shape(types)
    (y,) = op.reference(arrays)
    assert op.infer_shape(types) == [TensorType(DType.of(y), y.shape)]
    return y


def test_first_block_of_the_zero_key() -> None:
    """Known answers of the generator's authors (Random123, kat_vectors)."""
    assert [hex(w) for w in philox(0, 4)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_numbers_depend_on_seed_and_position_only() -> None:
    np.testing.assert_array_equal(philox(5, 100)[:37], philox(5, 37))
    assert (philox(5, 100) != philox(6, 100)).mean() > 0.99
    assert (philox(5, 100) != philox(5 + (1 << 32), 100)).mean() > 0.99


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16])
def test_uniform(dtype: DType) -> None:
    y = draw(attrs_of("uniform", (101, 307), low=-2.0, high=3.0, dtype=dtype)).astype(np.float64)
    assert y.min() >= -2
    assert y.max() <= 3
    assert abs(y.mean() - 0.5) < 0.05
    assert abs(y.var() - 25 / 12) < 0.05


def test_normal() -> None:
    y = draw(attrs_of("normal", (30011,), mean=1.0, scale=2.0))
    assert np.isfinite(y).all()
    assert abs(y.mean() - 1) < 0.05
    assert abs(y.std() - 2) < 0.05
    assert abs(np.mean(((y - 1) / 2) ** 4) - 3) < 0.2


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BOOL, DType.INT64])
def test_bernoulli(dtype: DType) -> None:
    p = np.repeat(np.array([0, 0.25, 1], np.float32), 10007)
    y = draw(attrs_of("bernoulli", p.shape, dtype=dtype), p).reshape(3, -1).astype(np.float64)
    assert y[0].max() == 0
    assert y[2].min() == 1
    assert abs(y[1].mean() - 0.25) < 0.02


@pytest.mark.parametrize(
    "kind, changed, words",
    [
        ("poisson", {}, "kind must"),
        ("normal", {"dtype": DType.INT32}, "floats"),
        ("bernoulli", {"shape": (4,)}, "shape must"),
    ],
)
def test_refusals(kind: str, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        make_op("Random", attrs_of(kind, (3,)) | changed).check_shape([TensorType(DType.FLOAT32, (3,))])
