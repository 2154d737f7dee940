"""Whether what a run gave holds an infinity or NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.run.model import model_run
from opalite.run.model.model_run import is_finite

BAD = (np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("large", [1, 1 << 22])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_of_many_is_found(monkeypatch: pytest.MonkeyPatch, dtype: Any, large: int) -> None:
    monkeypatch.setattr(model_run, "_LARGE", large)
    most = np.finfo(dtype).max
    array = np.full((3, 7, 5), most, dtype)  # whose sum is infinite
    array[0, 0] = 0, -0.0, np.finfo(dtype).smallest_subnormal, -most, 1
    assert is_finite([array, array[0, 0, 0], array[:, ::2, ::-1], array[:0]])
    for value in BAD:
        for place in ((0, 0, 0), (2, 6, 4), (1, 3, 2)):
            other = array.copy()
            other[place] = value
            assert not is_finite([array, other]), (value, place)
            assert not is_finite([other.transpose(2, 0, 1)])


def test_what_holds_no_floats_is_not_asked() -> None:
    assert is_finite([np.array([1, 2]), np.array([True]), np.array(["inf"], object), None])
