"""Selection of the next token: filters, and few candidates that decide as all tokens would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opalite.errors import OptionError
from opalite.llm.sampling import Candidates, Sampling, adjusted_candidates, logprobs_of, select_token


def candidates(row: Any, count: int, temperature: float) -> Candidates:
    order = np.argsort(-row, kind="stable")[:count]
    scaled = row / temperature
    log_sum = scaled.max() + np.log(np.exp(scaled - scaled.max()).sum())
    return Candidates(row[order], order, float(log_sum), count >= len(row))


def filtered(row: Any, s: Sampling) -> Any:
    """Return probabilities [n] by the definition: temperature, then top_k, top_p and min_p, each on the tokens left."""
    shares = np.exp(row / s.temperature - (row / s.temperature).max())
    shares /= shares.sum()
    order = np.argsort(-row, kind="stable")
    keep = np.zeros(len(row), bool)
    keep[order[: s.top_k or len(row)]] = True
    shares = np.where(keep, shares, 0) / shares[keep].sum()
    before = np.cumsum(shares[order]) - shares[order]
    if s.top_p < 1:
        keep[order[before >= s.top_p]] = False
    keep &= shares >= s.min_p * shares.max()
    return np.where(keep, shares, 0) / shares[keep].sum()


CASES = [
    Sampling(1.0),
    Sampling(0.7, top_k=5),
    Sampling(1.3, top_p=0.8),
    Sampling(0.9, min_p=0.1),
    Sampling(1.1, top_k=20, top_p=0.9, min_p=0.02),
    Sampling(2.0, top_p=0.999),
]


@pytest.mark.parametrize("sampling", CASES, ids=str)
@pytest.mark.parametrize("count", [1, 8, 50])
def test_draws_have_the_filtered_probabilities(sampling: Sampling, count: int) -> None:
    row = np.random.default_rng(0).standard_normal(50) * 2
    found = candidates(row, max(count, sampling.top_k), sampling.temperature)
    draws = (np.arange(20000) + 0.5) / 20000  # each token as often as its share says
    tokens = [select_token(found, sampling, d, lambda: candidates(row, 50, sampling.temperature)) for d in draws]
    shares = np.bincount(tokens, minlength=50) / len(draws)
    assert np.abs(shares - filtered(row, sampling)).max() < 2e-4


@given(st.integers(0, 10**6), st.floats(0, 1, exclude_max=True), st.sampled_from(CASES), st.integers(1, 40))
def test_a_few_candidates_decide_as_all_do(seed: int, draw: float, sampling: Sampling, count: int) -> None:
    row = np.random.default_rng(seed).standard_normal(40) * 3
    whole = candidates(row, 40, sampling.temperature)
    some = candidates(row, max(count, sampling.top_k), sampling.temperature)
    assert select_token(some, sampling, draw, lambda: whole) == select_token(whole, sampling, draw, lambda: whole)


def test_the_whole_row_is_asked_for_only_where_it_decides() -> None:
    row = np.array([5.0, 4.0, 1.0, 0.5, 0.0])
    asked = []

    def whole() -> Candidates:
        asked.append(1)
        return candidates(row, 5, 1.0)

    two = candidates(row, 2, 1.0)
    assert select_token(two, Sampling(1.0), 0.5, whole) == 0
    assert not asked
    assert select_token(two, Sampling(1.0), 0.999, whole) in (3, 4)
    assert asked


def test_greedy_takes_the_first() -> None:
    found = candidates(np.array([1.0, 3.0, 2.0]), 1, 1.0)
    assert select_token(found, Sampling(0.0), 0.9, lambda: found) == 1
    assert Sampling(0.8, top_k=1).is_greedy


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": 1.5}, {"top_k": -2}, {"repetition_penalty": 0}])
def test_values_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]


def test_biases_and_penalties_by_counts() -> None:
    row = np.array([1.0, 2.0, 3.0, 0.5], np.float32)
    s = Sampling(presence_penalty=0.5, frequency_penalty=1.0, logit_bias={3: 10.0, 0: -1.0}, repetition_penalty=2.0)
    found = adjusted_candidates(row.copy(), s, [2, 2, 1], {2}, {0})
    assert found.tokens.tolist() == [3, 1, 2, 0]
    np.testing.assert_allclose(found.logits, [10.5, 0.5, 1.5 - 2.5, -np.inf])
    with pytest.raises(OptionError, match="names token 4; the vocabulary has 4"):
        adjusted_candidates(row.copy(), Sampling(logit_bias={4: 1.0}), [], (), ())
    for wrong in ({"presence_penalty": 3.0}, {"logit_bias": {1: 101.0}}, {"logprobs": 21}):
        with pytest.raises(OptionError):
            Sampling(**wrong)  # type: ignore[arg-type]


def test_logprobs_are_the_models() -> None:
    row = np.array([0.0, np.log(3.0), np.log(4.0)], np.float32)
    found = logprobs_of(row, 1, 2)
    assert found.token == 1
    assert np.isclose(found.logprob, np.log(3 / 8))
    assert [t for t, _ in found.top] == [2, 1]
    np.testing.assert_allclose([p for _, p in found.top], np.log([4 / 8, 3 / 8]), rtol=1e-6)
