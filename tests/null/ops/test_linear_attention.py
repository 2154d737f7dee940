"""LinearAttention's reference against onnx's of the operator by that name, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError

from .oracles import ours

rng = np.random.default_rng(4)
Q, K, V = (rng.standard_normal((2, 3, n)).astype(np.float32) for n in (16, 8, 12))
STATE = rng.standard_normal((2, 2, 4, 6)).astype(np.float32)


def test_one_step_by_hand() -> None:
    decay, beta = rng.standard_normal((2, 3, 2)).astype(np.float32), rng.random((2, 3, 1)).astype(np.float32)
    y, after = ours("LinearAttention", [Q, K, V, STATE, decay, beta], queries=4, heads=2, scale=0.5)
    state = STATE.astype(np.float64)
    for t in range(3):
        for b in range(2):
            for h in range(2):
                k, v = K[b, t, 4 * h : 4 * h + 4], V[b, t, 6 * h : 6 * h + 6]
                s = state[b, h] * np.exp(decay[b, t, h])
                state[b, h] = s + np.outer(k, (v - s.T @ k) * beta[b, t, 0])
                for g in range(2):
                    query = Q[b, t, (2 * h + g) * 4 :][:4]
                    got = y[b, t, (2 * h + g) * 6 :][:6]
                    np.testing.assert_allclose(got, 0.5 * state[b, h].T @ query, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after, state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"queries": 3}, "divide one another"),
        ({0: Q[:, :, 1:]}, r"q must be \[2,3,4\*4\]"),
        ({2: V[:, 1:]}, "v must be"),
        ({3: STATE[:1]}, r"state must be \[2, 2, 4, 6\]"),
        ({4: Q}, r"decay must be \[2,3,2 or 8\]"),
        ({5: Q}, r"beta must be \[2,3,1 or 2\]"),
        ({2: V.astype(np.float16)}, "must be float32"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[Any, Any], said: str) -> None:
    arrays: list[Any] = [Q, K, V, STATE, Q[:, :, :2], Q[:, :, :1]]
    attrs = {"queries": 4, "heads": 2, "scale": 1.0}
    for where, what in change.items():
        if isinstance(where, int):
            arrays[where] = what
        else:
            attrs[where] = what
    with pytest.raises(ShapeError, match=said):
        ours("LinearAttention", arrays, **attrs)
