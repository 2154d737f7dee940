"""Scatter operators: references against onnx's own, duplicates, shapes and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op
from opalite.ops.scatter import REDUCTIONS

from .oracles import by_onnx, ours

rng = np.random.default_rng(5)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_elements(axis: int, reduction: str) -> None:
    x = rng.standard_normal((5, 7, 3)).astype(np.float32)
    shape = [4, 5, 2]
    shape[axis] = 11
    i = rng.integers(-x.shape[axis], x.shape[axis], shape)
    u = rng.standard_normal(shape).astype(np.float32)
    attrs = {"axis": axis, "reduction": reduction}
    np.testing.assert_allclose(
        ours("ScatterElements", [x, i, u], **attrs), by_onnx("ScatterElements", [x, i, u], **attrs), rtol=1e-6
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(depth: int, reduction: str) -> None:
    x = rng.integers(-50, 50, (5, 7, 3))
    i = np.stack([rng.integers(-d, d, (2, 11)) for d in x.shape[:depth]], -1)
    u = rng.integers(-9, 9, (2, 11, *x.shape[depth:]))
    np.testing.assert_array_equal(
        ours("ScatterND", [x, i, u], reduction=reduction), by_onnx("ScatterND", [x, i, u], reduction=reduction)
    )


def test_scatter_nd_without_coordinates_covers_all() -> None:
    x, u = np.arange(3), np.array([[1, 2, 3], [4, 5, 6]])
    i = np.zeros((2, 0), np.int64)
    np.testing.assert_array_equal(ours("ScatterND", [x, i, u], reduction="none"), [[4, 5, 6]])
    np.testing.assert_array_equal(ours("ScatterND", [x, i, u], reduction="add"), [[5, 8, 11]])


def test_the_last_duplicate_wins_and_updates_outside_are_dropped() -> None:
    x = np.zeros(4, np.int32)
    i, u = np.array([1, 9, 1, -4, -5]), np.array([1, 2, 3, 4, 5], np.int32)
    np.testing.assert_array_equal(ours("ScatterElements", [x, i, u], axis=0, reduction="none"), [[4, 3, 0, 0]])
    np.testing.assert_array_equal(ours("ScatterND", [x, i[:, None], u], reduction="none"), [[4, 3, 0, 0]])


def test_booleans_reduce_by_or_and_and() -> None:
    x, i, u = np.array([True, False]), np.array([0, 1]), np.array([False, True])
    assert ours("ScatterElements", [x, i, u], axis=0, reduction="add")[0].tolist() == [True, True]
    assert ours("ScatterElements", [x, i, u], axis=0, reduction="mul")[0].tolist() == [False, False]


@pytest.mark.parametrize(
    "op_type, shapes, attrs, words",
    [
        ("ScatterElements", [(5,), (3,), (2,)], {"axis": 0, "reduction": "none"}, "shape of indices"),
        ("ScatterElements", [(5,), (3,), (3,)], {"axis": 0, "reduction": "sum"}, "reduction must be"),
        ("ScatterElements", [(5, 2), (3, 3), (3, 3)], {"axis": 0, "reduction": "none"}, "larger than x"),
        ("ScatterND", [(5, 2), (3, 3), (3,)], {"reduction": "none"}, "3 coordinates"),
        ("ScatterND", [(5, 2), (3, 1), (3,)], {"reduction": "none"}, r"shape \(3, 2\)"),
    ],
)
def test_refusals(op_type: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], words: str) -> None:
    dtypes = (DType.FLOAT32, DType.INT64, DType.FLOAT32)
    types = [TensorType(d, s) for d, s in zip(dtypes, shapes, strict=True)]
    with pytest.raises(ShapeError, match=words):
        make_op(op_type, attrs).check_shape(types)
