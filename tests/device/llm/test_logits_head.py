"""LogitsHead on the device: candidates equal NumPy's, with penalties and banned tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.llm.logits_head import LogitsHead

from ...helpers.decoders import WORDS, llama


@pytest.fixture
def head(rt: Runtime) -> LogitsHead:
    return LogitsHead(opalite.InferenceSession(llama(), device=rt.info.id), "logits")


def expected(logits: Any, penalty: float, seen: set[int], banned: set[int]) -> Any:
    row = logits[0, -1].astype(np.float64)
    for t in seen:
        row[t] = row[t] / penalty if row[t] > 0 else row[t] * penalty
    row[list(banned)] = -np.inf
    return row


@pytest.mark.parametrize("positions", [1, 5])
@pytest.mark.parametrize("count", [1, 7, WORDS, 1000])
@pytest.mark.parametrize(
    "penalty, seen, banned",
    [(1.0, {3}, set()), (1.7, {3, 5, 90}, set()), (0.5, set(range(70)), {0, 96}), (1.0, set(), {4})],
)
def test_candidates(
    head: LogitsHead, positions: int, count: int, penalty: float, seen: set[int], banned: set[int]
) -> None:
    logits = np.random.default_rng(positions).standard_normal((1, positions, WORDS)).astype(np.float32) * 4
    found = head.candidates(logits, count, 0.8, penalty, seen, banned)
    row = expected(logits, penalty, seen if penalty != 1 else set(), banned)
    order = np.argsort(-row, kind="stable")
    allowed = min(count, WORDS - len(banned))
    assert found.tokens[:allowed].tolist() == order[:allowed].tolist()
    assert len(found.tokens) == min(count, WORDS)
    assert found.is_all == (count >= WORDS)
    if count != 1:
        np.testing.assert_allclose(found.logits[:allowed], row[order[:allowed]], rtol=1e-6)
        assert np.isclose(found.log_sum, np.log(np.exp(row / 0.8).sum()), rtol=1e-5)


def test_equal_logits_choose_the_first_token(head: LogitsHead) -> None:
    logits = np.zeros((1, 2, WORDS), np.float32)
    assert head.candidates(logits, 1).tokens.tolist() == [0]
    assert head.candidates(logits, 4).tokens.tolist() == [0, 1, 2, 3]
