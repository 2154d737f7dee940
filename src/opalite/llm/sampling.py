"""Sampling: selects the next token among the likeliest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import OptionError

Array = np.ndarray[Any, Any]
_RANGES = {
    "temperature": (0, np.inf),
    "top_k": (0, np.inf),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "logprobs": (0, 20),
}
CANDIDATES = 256
"""Number of candidates without top_k; if they do not decide, the whole row is transferred."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters.

    temperature: divides logits; 0 is greedy. top_k: sample among the k likeliest tokens; 0: all. top_p: among the
        fewest likeliest tokens with total probability >= top_p. min_p: among tokens at least min_p times as probable as
        the likeliest. They apply in this order, each to the tokens left by the one before.
    repetition_penalty: divides positive and multiplies negative logits of tokens seen before (CTRL, Keskar et al.,
        2019).
    presence_penalty, frequency_penalty: from -2 to 2; subtracted from the logits of tokens of this text, the second
        once for each occurrence. logit_bias: numbers from -100 to 100, added to the logits of tokens, by id.
    logprobs: the number of likeliest tokens, up to 20, whose log-probabilities are recorded for each position beside
        that of the chosen token; None records none.
    seed: equal seeds give equal texts; None: a random seed.

    Raises OptionError for values out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            if not low <= (getattr(self, name) or 0) <= high:
                raise OptionError(f"{name} is a number from {low} to {high}, got {getattr(self, name)!r}")
        if self.repetition_penalty <= 0:
            raise OptionError(f"repetition_penalty is above 0 (1 changes nothing), got {self.repetition_penalty!r}")
        for token, bias in self.logit_bias.items():
            if not -100 <= bias <= 100:
                raise OptionError(f"logit_bias is a number from -100 to 100, got {bias!r} for token {token}")

    @property
    def needs_row(self) -> bool:
        """Whether the host needs all logits: for biases, penalties by counts, and log-probabilities."""
        return bool(self.presence_penalty or self.frequency_penalty or self.logit_bias or self.logprobs is not None)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def candidates(self) -> int:
        """Number of likeliest tokens that the host needs."""
        return 1 if self.is_greedy else self.top_k or CANDIDATES


@dataclass(frozen=True)
class Candidates:
    """Likeliest tokens in descending order.

    logits: [k] after penalties. tokens: [k] ids. log_sum: log of the sum of exp(logit / temperature) over all tokens.
    is_all: whether all tokens are included.
    """

    logits: Array
    tokens: Array
    log_sum: float
    is_all: bool


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of one position, of the model alone. top: the likeliest tokens in descending order."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def adjusted_candidates(
    row: Array, sampling: Sampling, written: Sequence[int], seen: Collection[int], banned: Collection[int]
) -> Candidates:
    """All tokens as candidates, after biases and penalties.

    row: logits [vocabulary], changed in place. written: the tokens of this text; seen: those that the repetition
    penalty counts; banned: excluded tokens. OptionError for a bias of a token outside the vocabulary.
    """
    if sampling.repetition_penalty != 1 and seen:
        ids = np.fromiter(seen, np.int64)
        row[ids] = np.where(
            row[ids] > 0, row[ids] / sampling.repetition_penalty, row[ids] * sampling.repetition_penalty
        )
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < len(row):
            raise OptionError(f"logit_bias names token {token}; the vocabulary has {len(row)} tokens, from 0 on")
        row[token] += bias
    if sampling.presence_penalty or sampling.frequency_penalty:
        for token, count in Counter(written).items():
            row[token] -= sampling.presence_penalty + count * sampling.frequency_penalty
    if banned:
        row[np.fromiter(banned, np.int64)] = -np.inf
    order = np.argsort(-row, kind="stable")
    logits = row[order]
    scaled = logits.astype(np.float64) / (sampling.temperature or 1.0)
    return Candidates(logits, order, float(scaled[0] + np.log(np.exp(scaled - scaled[0]).sum())), True)


def logprobs_of(row: Array, token: int, count: int) -> TokenLogprobs:
    """The log-probabilities of `token` and of the `count` likeliest tokens. row: logits [vocabulary]."""
    wide = row.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    top = np.argsort(-wide, kind="stable")[:count]
    return TokenLogprobs(token, float(wide[token]), tuple((int(t), float(wide[t])) for t in top))


def select_token(found: Candidates, sampling: Sampling, draw: float, whole: Callable[[], Candidates]) -> int:
    """Select a token by `draw`, a random number in [0, 1).

    whole: returns all tokens as candidates; called only if `found` does not decide.
    """
    chosen = _select_token(found, sampling, draw)
    if chosen is None:
        chosen = _select_token(whole(), sampling, draw)
        assert chosen is not None
    return chosen


def _select_token(found: Candidates, sampling: Sampling, draw: float) -> int | None:
    """Return the token, or None if it depends on tokens outside the candidates."""
    if sampling.is_greedy:
        return int(found.tokens[0])
    scaled = found.logits.astype(np.float64) / sampling.temperature
    complete, log_sum = found.is_all, found.log_sum
    if 0 < sampling.top_k <= len(scaled):
        scaled, complete = scaled[: sampling.top_k], True
        log_sum = scaled[0] + np.log(np.exp(scaled - scaled[0]).sum())
    shares = np.exp(scaled - log_sum)
    sums = np.cumsum(shares)
    count = len(shares)
    if sampling.top_p < 1:
        count = int(np.searchsorted(sums, sampling.top_p)) + 1
        if count > len(shares) and not complete:
            return None
        complete, count = True, min(count, len(shares))
    if sampling.min_p > 0:
        likely = int((shares >= sampling.min_p * shares[0]).sum())
        if likely == len(shares) and not complete:
            return None
        complete, count = True, min(count, max(1, likely))
    kept = sums[count - 1] if complete else 1.0
    place = int(np.searchsorted(sums[:count], draw * kept, side="right"))
    if place >= count:
        if not complete:
            return None
        place = count - 1  # rounding: the sums end just below one
    return int(found.tokens[place])
