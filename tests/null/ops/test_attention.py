"""Attention: the reference against onnx's, queries that see nothing, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_onnx

rng = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


def ours(arrays: list[Array | None], **attrs: Any) -> Array:
    op = make_op("Attention", {"scale": 1.0, "causal": False, "softcap": 0.0} | attrs)
    types = [None if a is None else TensorType(DType.of(a), a.shape) for a in arrays]
    op.check_shape(types)
    (y,) = op.reference(arrays)
    assert op.infer_shape(types) == [TensorType(DType.of(y), y.shape)]
    return y


def random(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("heads, shared", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads(heads: int, shared: int, causal: bool) -> None:
    q, k, v = random(2, heads, 5, 8), random(2, shared, 7, 8), random(2, shared, 7, 3)
    want = by_onnx("Attention", [q, k, v], opset=23, scale=0.3, is_causal=int(causal))[0]
    np.testing.assert_allclose(ours([q, k, v, None], scale=0.3, causal=causal), want, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 7)])
def test_masks(shape: tuple[int, ...]) -> None:
    q, k, v, mask = random(2, 3, 5, 8), random(2, 3, 7, 8), random(2, 3, 7, 8), random(*shape)
    want = by_onnx("Attention", [q, k, v, mask], opset=23, scale=0.5)[0]
    np.testing.assert_allclose(ours([q, k, v, mask], scale=0.5), want, atol=1e-6)


def test_softcap() -> None:
    q, k, v = random(1, 2, 5, 8), random(1, 2, 5, 8), random(1, 2, 5, 8)
    want = by_onnx("Attention", [q, k, v], opset=23, scale=2.0, softcap=1.5)[0]
    np.testing.assert_allclose(ours([q, k, v, None], scale=2.0, softcap=1.5), want, atol=1e-6)


def test_a_query_that_sees_no_key_gives_zeros() -> None:
    q, k, v = random(1, 1, 2, 4), random(1, 1, 3, 4), random(1, 1, 3, 4)
    mask = np.zeros((2, 3), np.float32)
    mask[1] = -np.inf
    y = ours([q, k, v, mask])
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(y[0, 0, 1], 0)


@pytest.mark.parametrize(
    "q, k, v, mask, message",
    [
        ((1, 3, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), None, "share k's 2 heads"),
        ((1, 2, 5, 8), (1, 2, 7, 4), (1, 2, 7, 8), None, "one head size"),
        ((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 6, 8), None, "batch, heads and length"),
        ((2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), None, "needs q"),
        ((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), (5, 6), "broadcast"),
    ],
)
def test_misfits_are_refused(q: Any, k: Any, v: Any, mask: Any, message: str) -> None:
    types = [None if s is None else TensorType(DType.FLOAT32, s) for s in (q, k, v, mask)]
    with pytest.raises(ShapeError, match=message):
        make_op("Attention", {"scale": 1.0, "causal": False, "softcap": 0.0}).check_shape(types)
