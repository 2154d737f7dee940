"""Fixed-point arithmetic beside real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from opalite.expr.expression import evaluate
from opalite.expr.trace_function import Sym, trace
from opalite.importer.tflite.fixed_point import (
    exp_negative,
    fixed_multiplier,
    fixed_multiplier_16,
    inverse_root,
    log_of,
    reciprocal,
    round_away,
    scaled,
    shifted_left,
    shifted_right,
    table_of,
)
from opalite.ir import DType

NUMBERS = np.array([1, 2, 3, 5, 9, 100, 4095, 4096, 77777, 2**28, 2**30 + 12345, 2**31 - 1], np.int32)


def of(fn: Callable[[Sym], Sym], numbers: object = NUMBERS) -> np.ndarray:
    array = np.asarray(numbers, np.int32)
    return evaluate(trace(fn, DType.INT32), [array], array.shape).astype(np.float64)


@pytest.mark.parametrize("real", [1.0, 0.5, 0.1, 1 / 3, 3e-5, 700.0, 1 - 2.0**-40])
def test_a_multiplier_is_the_factor_in_31_bits(real: float) -> None:
    multiplier, shift = fixed_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert multiplier * 2.0 ** (shift - 31) == pytest.approx(real, rel=2.0**-31)


def test_multipliers_of_16_bits_are_rounded_and_end_below_one() -> None:
    """A factor just below a power of two would need 17 bits, as in LiteRT's reference kernels."""
    for real in (0.1, 0.7, 3e-4, 200.0):
        multiplier, shift = fixed_multiplier_16(real)
        assert multiplier == round(math.frexp(real)[0] * 2**15)
        assert multiplier * 2.0**-shift == pytest.approx(real, rel=2.0**-15)
    assert fixed_multiplier_16(1 - 2.0**-20) == (0x7FFF, 15)


def test_a_fraction_that_rounds_up_to_one_takes_the_next_shift() -> None:
    assert fixed_multiplier(1 - 2.0**-40) == fixed_multiplier(1.0) == (2**30, 1)


def test_factors_too_small_to_count_are_zero() -> None:
    assert fixed_multiplier(2.0**-40) == fixed_multiplier(0.0) == (0, 0)


def test_halves_go_away_from_zero() -> None:
    assert list(round_away(np.float32([0.5, -0.5, 1.5, -2.5, 0.49999997, 3.0]))) == [1, -1, 2, -3, 0, 3]
    assert list(of(lambda x: shifted_right(x, 2), [2, -2, 6, -6, 5, -5, 1, -1])) == [1, -1, 2, -2, 1, -1, 0, 0]


def test_rescaling_rounds_the_real_product() -> None:
    numbers = np.arange(-1000, 1000, 7)
    assert np.abs(of(lambda x: scaled(x, 0.3712), numbers) - numbers * 0.3712).max() <= 0.75


def test_shifts_to_the_left_saturate() -> None:
    assert list(of(lambda x: shifted_left(x, 4), [3, -3, 2**28, -(2**28)])) == [48, -48, 2**31 - 1, -(2**31)]


def test_exponentials() -> None:
    raw = -np.arange(0, 2**31 - 1, 12345678, dtype=np.int64)
    assert np.abs(of(lambda x: exp_negative(x, 5), raw) / 2**31 - np.exp(raw / 2**26)).max() < 1e-6
    assert table_of(lambda x: exp_negative(x, 5), 0, 0) == 2**31 - 1


def test_reciprocals_roots_and_logarithms() -> None:
    raw, shift = (of(lambda x, k=k: reciprocal(x, 31)[k]) for k in (0, 1))
    np.testing.assert_allclose(raw * 2.0 ** (-31 - shift), 1.0 / NUMBERS, rtol=1e-6)
    raw, shift = (of(lambda x, k=k: inverse_root(x)[k]) for k in (0, 1))
    np.testing.assert_allclose(raw * 2.0 ** (shift - 31), 1 / np.sqrt(NUMBERS.astype(float)), rtol=2e-6)
    one = 1 << 19  # with 12 bits before the point
    above = np.array([one, one + 3, 3 * one, 1000 * one], np.int32)
    np.testing.assert_allclose(of(lambda x: log_of(x, 5), above) / 2**26, [math.log(v / one) for v in above], atol=1e-6)
