"""Rows of floats as int8 with a scale: how far off they are, and rows that hold no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir.constants.int8_rows import TAIL, from_byte_rows, refuse_row, to_byte_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_float_is_off_by_half_a_step(dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((3, 5, 64)) * 10.0 ** rng.integers(-3, 4, (3, 5, 1))).astype(dtype)
    rows = to_byte_rows(x)
    assert (rows.dtype, rows.shape) == (np.int8, (3, 5, 64 + TAIL))
    found = from_byte_rows(rows, dtype)
    largest = np.abs(x.astype(np.float64)).max(-1, keepdims=True)
    bound = largest / 254 * (1 + 1e-5) + (largest / 2**11 if dtype is np.float16 else 0)
    assert (np.abs(found.astype(np.float64) - x) <= bound).all()
    again = from_byte_rows(to_byte_rows(from_byte_rows(rows)))
    np.testing.assert_allclose(again, from_byte_rows(rows), rtol=1e-6)


def test_rows_of_zeros_and_of_what_is_no_number() -> None:
    x = np.ones((4, 8), np.float32)
    x[0], x[1, 3], x[2, 5] = 0, np.nan, -np.inf
    found = from_byte_rows(to_byte_rows(x))
    assert (found[0] == 0).all()
    assert np.isnan(found[1:3]).all()
    np.testing.assert_allclose(found[3], 1, rtol=1e-6)


def test_rows_end_at_whole_words() -> None:
    assert refuse_row(64) == ""
    assert "multiple of 4" in refuse_row(66)
    assert refuse_row(0)
