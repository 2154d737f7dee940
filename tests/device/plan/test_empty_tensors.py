"""Models with tensors without elements, on the device."""

from __future__ import annotations

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime

from ...helpers.empty_models import BY_HAND, CASES, empty_case
from ...helpers.numpy_session import NumpySession


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_references(rt: Runtime, case: str) -> None:
    raw, feeds = empty_case(case)
    session = opalite.InferenceSession(raw, device=rt.info.id, precision="fp32")
    for _ in range(2):
        for got, want in zip(session.run(None, feeds), BY_HAND.get(case) or NumpySession(raw).run(feeds), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
