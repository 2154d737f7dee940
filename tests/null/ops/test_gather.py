"""Gather and scatter operators: references against onnx's own, shapes and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op

from .oracles import by_onnx, ours

rng = np.random.default_rng(3)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_gather(axis: int, shape: tuple[int, ...]) -> None:
    x = rng.standard_normal((5, 7, 3)).astype(np.float32)
    i = rng.integers(-x.shape[axis], x.shape[axis], shape)
    np.testing.assert_array_equal(ours("Gather", [x, i], axis=axis), by_onnx("Gather", [x, i], axis=axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(axis: int) -> None:
    x = rng.integers(0, 100, (5, 7, 3))
    shape = [5, 7, 3]
    shape[axis] = 11
    i = rng.integers(-x.shape[axis], x.shape[axis], shape).astype(np.int32)
    np.testing.assert_array_equal(
        ours("GatherElements", [x, i], axis=axis), by_onnx("GatherElements", [x, i], axis=axis)
    )


def test_gather_elements_of_fewer_places() -> None:
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(ours("GatherElements", [x, np.array([[3, -4]])], axis=1), [[[3, 0]]])


@pytest.mark.parametrize(
    "batch, shape",
    [(0, (11, 2)), (0, (2, 3, 3)), (1, (5, 4, 1)), (1, (5, 2, 2)), (2, (5, 7, 1)), (0, (3, 1)), (0, (4, 0))],
)
def test_gather_nd(batch: int, shape: tuple[int, ...]) -> None:
    x = rng.standard_normal((5, 7, 3)).astype(np.float32)
    i = np.zeros(shape, np.int64)
    for k in range(shape[-1]):
        i[..., k] = rng.integers(-x.shape[batch + k], x.shape[batch + k], shape[:-1])
    (y,) = ours("GatherND", [x, i], batch_dims=batch)
    if shape[-1] == 0:
        np.testing.assert_array_equal(y, np.broadcast_to(x, (4, 5, 7, 3)))
    else:
        np.testing.assert_array_equal(y, by_onnx("GatherND", [x, i], batch_dims=batch)[0])


def test_indices_outside_are_clamped() -> None:
    x = np.arange(5)
    np.testing.assert_array_equal(ours("Gather", [x, np.array([-9, 9, -5, -1])], axis=0), [[0, 4, 0, 4]])
    np.testing.assert_array_equal(ours("GatherElements", [x, np.array([7, -7])], axis=0), [[4, 0]])
    np.testing.assert_array_equal(ours("GatherND", [x, np.array([[7], [-7]])], batch_dims=0), [[4, 0]])


@pytest.mark.parametrize(
    "op_type, shapes, attrs, words",
    [
        ("Gather", [(5,), (3,)], {"axis": 1}, "axis 1 is outside"),
        ("Gather", [(0, 2), (3,)], {"axis": 0}, "empty"),
        ("GatherElements", [(5, 2), (3,)], {"axis": 0}, "rank 2"),
        ("GatherElements", [(5, 2), (3, 3)], {"axis": 0}, "larger than x"),
        ("GatherND", [(5, 2), (3, 3)], {"batch_dims": 0}, "3 coordinates"),
        ("GatherND", [(5, 2), (3, 1)], {"batch_dims": 1}, "must agree"),
        ("GatherND", [(5, 2), (5,)], {"batch_dims": 1}, "does not fit"),
    ],
)
def test_refusals(op_type: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], words: str) -> None:
    types = [TensorType(DType.FLOAT32, shapes[0]), TensorType(DType.INT64, shapes[1])]
    with pytest.raises(ShapeError, match=words):
        make_op(op_type, attrs).check_shape(types)


def test_indices_must_be_integers() -> None:
    types = [TensorType(DType.FLOAT32, (5,)), TensorType(DType.FLOAT32, (2,))]
    with pytest.raises(ShapeError, match="i32 or i64"):
        make_op("Gather", {"axis": 0}).check_shape(types)
