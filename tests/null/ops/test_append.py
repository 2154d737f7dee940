"""Append into memory of int8 rows, and DequantizeRows, which reads it: references and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.constants.int8_rows import TAIL, from_byte_rows, to_byte_rows
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.append import Append, DequantizeRows

rng = np.random.default_rng(2)


def test_floats_become_rows_of_int8() -> None:
    memory, new = np.zeros((2, 3, 7, 8 + TAIL), np.int8), rng.standard_normal((2, 3, 2, 8)).astype(np.float32)
    (y,) = Append(2, 4).reference([memory, new])
    np.testing.assert_array_equal(y[:, :, 4:6], to_byte_rows(new))
    assert not y[:, :, :4].any()
    (y,) = Append(2, 0, circular=True).reference([memory, new, np.array([6, 1])])
    np.testing.assert_array_equal(y[0, :, [6, 0]], to_byte_rows(new)[0].swapaxes(0, 1))
    np.testing.assert_array_equal(y[1, :, 1:3], to_byte_rows(new)[1])


@pytest.mark.parametrize("half", [False, True])
def test_rows_are_widened_as_far_as_they_count(half: bool) -> None:
    x = rng.standard_normal((2, 5, 3, 8)).astype(np.float32)
    op = DequantizeRows(1, 4, half)
    (y,) = op.reference([to_byte_rows(x)])
    assert y.dtype == (np.float16 if half else np.float32)
    np.testing.assert_array_equal(y, from_byte_rows(to_byte_rows(x))[:, :4].astype(y.dtype))
    (found,) = op.infer_shape([TensorType(DType.INT8, (2, 5, 3, 12))])
    assert (found.shape, found.dtype.np) == (y.shape, y.dtype)


@pytest.mark.parametrize("new", [(2, 3, 2, 12), (2, 3, 2, 4), (2, 2, 2, 8)])
def test_what_does_not_fit_the_rows(new: tuple[int, ...]) -> None:
    memory = TensorType(DType.INT8, (2, 3, 7, 12))
    with pytest.raises(ShapeError, match="does not fit"):
        Append(2, 0).check_shape([memory, TensorType(DType.FLOAT32, new)])


@pytest.mark.parametrize(
    "op, x, why",
    [
        (DequantizeRows(2, 1), TensorType(DType.INT8, (2, 3, 12)), "axis"),
        (DequantizeRows(0, 3), TensorType(DType.INT8, (2, 3, 12)), "fewer"),
        (DequantizeRows(0, 1), TensorType(DType.UINT8, (2, 3, 12)), "int8"),
    ],
)
def test_what_cannot_be_widened(op: DequantizeRows, x: TensorType, why: str) -> None:
    with pytest.raises(ShapeError, match=why):
        op.check_shape([x])
