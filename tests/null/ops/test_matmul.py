"""MatMul: the reference against onnx's, shapes and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_onnx, ours

rng = np.random.default_rng(3)
PLAIN = {"trans_a": False, "trans_b": False}


@pytest.mark.parametrize(
    "a, b",
    [((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((3, 5), (2, 5, 7)), ((2, 1, 3, 5), (7, 5, 1)), ((3, 0), (0, 5))],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64"])
def test_products_are_numpys(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> None:
    x, y = rng.integers(0, 9, a).astype(dtype), rng.integers(0, 9, b).astype(dtype)
    np.testing.assert_array_equal(ours("MatMul", [x, y], **PLAIN)[0], by_onnx("MatMul", [x, y])[0])


def test_transposed_storage_is_gemm() -> None:
    a, b = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal((7, 5)).astype(np.float32)
    (y,) = ours("MatMul", [a, b], trans_a=True, trans_b=True)
    np.testing.assert_allclose(y, by_onnx("Gemm", [a, b, np.zeros(7, np.float32)], transA=1, transB=1)[0], rtol=1e-5)


def test_half_is_summed_in_float() -> None:
    a = np.full((1, 4096), 1, np.float16)
    assert ours("MatMul", [a, np.full((4096, 1), 1, np.float16)], **PLAIN)[0] == 4096


@pytest.mark.parametrize(
    "a, b, message",
    [
        ((3, 5), (4, 7), "5 columns but b has 4 rows"),
        ((5,), (5, 7), "rank 2 or more"),
        ((2, 3, 5), (3, 5, 7), "broadcast"),
    ],
)
def test_misfits_are_refused(a: tuple[int, ...], b: tuple[int, ...], message: str) -> None:
    types = [TensorType(DType.FLOAT32, a), TensorType(DType.FLOAT32, b)]
    with pytest.raises(ShapeError, match=message):
        make_op("MatMul", PLAIN).check_shape(types)


def test_types_must_agree() -> None:
    with pytest.raises(ShapeError, match="one element type"):
        make_op("MatMul", PLAIN).check_shape([TensorType(DType.FLOAT32, (2, 2)), TensorType(DType.INT32, (2, 2))])
