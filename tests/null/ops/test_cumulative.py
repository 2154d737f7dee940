"""Cumulative's reference against onnxruntime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.cumulative import Cumulative

from .oracles import by_ort, ours

rng = np.random.default_rng(29)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_sums(axis: int, exclusive: bool, reverse: bool, dtype: str) -> None:
    x = (10 * rng.standard_normal((3, 5, 7))).astype(dtype)
    (want,) = by_ort("CumSum", [x, np.array(axis)], opset=14, exclusive=int(exclusive), reverse=int(reverse))
    (got,) = ours("Cumulative", [x], kind="sum", axis=axis, exclusive=exclusive, reverse=reverse)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_products() -> None:
    x = np.array([2, 3, 4])
    cases = {(False, False): [2, 6, 24], (True, False): [1, 2, 6], (False, True): [24, 12, 4], (True, True): [12, 4, 1]}
    for (exclusive, reverse), want in cases.items():
        (got,) = ours("Cumulative", [x], kind="prod", axis=0, exclusive=exclusive, reverse=reverse)
        assert got.tolist() == want


def test_of_nothing() -> None:
    x = np.zeros((3, 0), np.float32)
    assert ours("Cumulative", [x], kind="sum", axis=1, exclusive=True, reverse=False)[0].shape == (3, 0)


def test_refusals() -> None:
    op = Cumulative("sum", axis=1, exclusive=False, reverse=False)
    with pytest.raises(ShapeError, match="axis 1 is outside"):
        op.check_shape([TensorType(DType.FLOAT32, (3,))])
    with pytest.raises(ShapeError, match="numbers"):
        op.check_shape([TensorType(DType.BOOL, (3, 3))])
    with pytest.raises(ShapeError, match="kind must"):
        replace(op, kind="max").check_shape([TensorType(DType.FLOAT32, (3, 3))])
