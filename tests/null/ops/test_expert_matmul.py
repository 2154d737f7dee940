"""The reference of ExpertMatMul against plain loops, its refusals, and what it says it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.expert_matmul import ExpertMatMul
from opalite.ops.operator import make_type

rng = np.random.default_rng(3)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("bits", [0, 4])
def test_reference(bits: int, shared: bool) -> None:
    x = rng.standard_normal((3, 8) if shared else (3, 2, 8)).astype(np.float32)
    picks, bias = np.array([[0, 3], [-1, 1], [9, 0]]), rng.standard_normal(20).astype(np.float32)
    w: Any = rng.standard_normal((20, 8)).astype(np.float32)
    real, parts = w, []
    if bits:
        w = rng.integers(0, 16, (20, 8)).astype(np.uint8)
        scale, zero = rng.random((20, 2)).astype(np.float32), rng.integers(0, 16, (20, 2)).astype(np.uint8)
        real, parts = (w - np.repeat(zero, 4, 1).astype(np.float32)) * np.repeat(scale, 4, 1), [scale, zero]
    (got,) = ExpertMatMul(4, bits, 4 if bits else 0).reference([x, picks, w, bias, *parts])
    assert got.shape == (3, 2, 5)
    for t, s in np.ndindex(3, 2):
        e = {-1: 3, 9: 3}.get(int(picks[t, s]), int(picks[t, s]))
        own = slice(5 * e, 5 * e + 5)
        row = x[t] if shared else x[t, s]
        np.testing.assert_allclose(got[t, s], real[own] @ row + bias[own], rtol=1e-5, atol=1e-5)


def types(**changed: Any) -> list[TensorType | None]:
    usual = {"x": (DType.FLOAT32, (3, 8)), "picks": (DType.INT64, (3, 2)), "w": (DType.FLOAT32, (20, 8)), "bias": None}
    given = usual | changed
    return [None if t is None else make_type(t[0], t[1]) for t in given.values()]


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"x": (DType.INT32, (3, 8))}, "x must be"),
        ({"picks": (DType.INT64, (4, 2))}, "picks must have the tokens"),
        ({"picks": (DType.FLOAT32, (3, 2))}, "indices must be"),
        ({"x": (DType.FLOAT32, (3, 5, 8))}, "picks must have the tokens"),
        ({"w": (DType.FLOAT32, (21, 8))}, r"w must be \[4 \* N, 8\]"),
        ({"w": (DType.FLOAT32, (20, 9))}, r"w must be \[4 \* N, 8\]"),
        ({"w": (DType.FLOAT16, (20, 8))}, "w must be of x's type"),
        ({"bias": (DType.FLOAT32, (5,))}, r"bias must be \[20\]"),
    ],
)
def test_refusals(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ExpertMatMul(4).check_shape(types(**changed))


def test_refusals_of_few_bits() -> None:
    codes = {"w": (DType.UINT8, (20, 8)), "bias": None, "scale": (DType.FLOAT32, (20, 2))}
    ExpertMatMul(4, 4, 4).check_shape(types(**codes))
    with pytest.raises(ShapeError, match="scales for 20 rows"):
        ExpertMatMul(4, 4, 8).check_shape(types(**codes))
    with pytest.raises(ShapeError, match="8-bit integers"):
        ExpertMatMul(4, 4, 4).check_shape(types(**codes | {"w": (DType.INT32, (20, 8))}))


def test_cost_is_of_picked_experts() -> None:
    """Two slots of one token read two of 64 matrices."""
    op, w = ExpertMatMul(64), make_type(DType.FLOAT32, (64 * 32, 128))
    ins = [make_type(DType.FLOAT32, (1, 128)), make_type(DType.INT64, (1, 2)), w]
    cost = op.cost(ins, op.infer_shape(ins))
    assert cost.flops == 2 * 2 * 32 * 128
    assert 2 / 64 < cost.bytes / (w.count * 4) < 3 / 64
