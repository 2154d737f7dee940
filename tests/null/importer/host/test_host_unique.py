"""Host operators over whole tensors against onnxruntime: Unique in each order and along each axis, determinants."""

from __future__ import annotations

import numpy as np
import pytest

from ..oracles import Values, assert_same, by_ort, imported

V = Values(3)
X = np.random.default_rng(5).integers(-2, 3, (4, 3, 5)).astype(np.float32)
X[2] = X[0]
X[:, :, 4] = X[:, :, 1]


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8])
def test_unique(axis: int | None, is_sorted: int, dtype: type) -> None:
    attrs = {"sorted": is_sorted} | ({} if axis is None else {"axis": axis})
    x = X.astype(dtype)
    if dtype is np.int8:
        x = x[:2, :, :1]
    got = imported("Unique", [x], (0, 1, 2, 3), opset=17, may_use_host=True, **attrs)
    assert_same(got, by_ort("Unique", [x], (0, 1, 2, 3), opset=17, **attrs))


def test_unique_gives_the_outputs_that_are_named() -> None:
    attrs = {"sorted": 0}
    got = imported("Unique", [X], (0, 3), opset=17, may_use_host=True, **attrs)
    assert_same(got, by_ort("Unique", [X], (0, 3), opset=17, **attrs))


def test_determinant_of_half_matrices() -> None:
    x = V.f(3, 2, 2).astype(np.float16)
    got = imported("Det", [x], opset=22, may_use_host=True)
    assert got[0].dtype == np.float16
    np.testing.assert_allclose(got[0], np.linalg.det(x.astype(np.float64)), rtol=2e-3, atol=1e-3)
