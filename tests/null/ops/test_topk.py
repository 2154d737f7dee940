"""TopK's reference against onnxruntime; ties, NaN and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.topk import TopK

from .oracles import by_ort, ours

rng = np.random.default_rng(37)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_with_many_ties(axis: int, k: int, largest: bool, dtype: str) -> None:
    x = rng.integers(-3, 3, (5, 7, 11)).astype(dtype)
    want = by_ort("TopK", [x, np.array([k])], 2, opset=11, axis=axis, largest=int(largest), sorted=1)
    got = ours("TopK", [x], k=k, axis=axis, largest=largest, sorted=True)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


def test_nan_is_the_largest() -> None:
    x = np.array([1, np.nan, 3, np.nan, -np.inf], np.float32)
    attrs = {"k": 5, "axis": 0, "sorted": True}
    assert ours("TopK", [x], largest=True, **attrs)[1].tolist() == [1, 3, 2, 0, 4]
    assert ours("TopK", [x], largest=False, **attrs)[1].tolist() == [4, 0, 2, 1, 3]


def test_unsigned_integers() -> None:
    x = np.array([0, 255, 7, 255, 128], np.uint8)
    assert ours("TopK", [x], k=3, axis=0, largest=True, sorted=True)[1].tolist() == [1, 3, 4]


def test_refusals() -> None:
    types = [TensorType(DType.FLOAT32, (3, 5))]
    op = TopK(k=6, axis=1, largest=True, sorted=True)
    with pytest.raises(ShapeError, match=r"k must lie in \[0, 5\]"):
        op.check_shape(types)
    with pytest.raises(ShapeError, match="axis 2 is outside"):
        replace(op, axis=2).check_shape(types)
    with pytest.raises(ShapeError, match="numbers"):
        replace(op, k=1).check_shape([TensorType(DType.BOOL, (3, 5))])
