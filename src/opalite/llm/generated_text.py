"""GeneratedText: a text while it is generated, the reason of its end, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .sampling import Sampling, TokenLogprobs
from .stop_strings import StopStrings
from .tokenizer import Detokenizer, Tokenizer


@dataclass(frozen=True)
class Limits:
    """Conditions that end a text: `count` tokens, a string in `stops`, or a token in `end_tokens`; and banned tokens.

    banned: tokens never generated after the first; banned_first: tokens not generated first.
    """

    count: int
    stops: tuple[str, ...]
    end_tokens: frozenset[int]
    banned: frozenset[int] = frozenset()
    banned_first: frozenset[int] = frozenset()


@dataclass
class GenerationMetrics:
    """Tokens, times and memory of one generation.

    prompt_tokens: length of the prompt; reused_tokens: prompt tokens already in the caches. prefill_s: seconds for
    reading the others. first_token_s: seconds from the call to the first token. tokens: number of generated tokens.
    decode_s: seconds for the tokens after the first, without the caller's time between pieces. weight_bytes: packed
    weights on the device. cache_bytes: size of the KV caches. moved_bytes: of caches, copied between beams.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    tokens: int = 0
    decode_s: float = 0.0
    weight_bytes: int = 0
    cache_bytes: int = 0
    moved_bytes: int = 0

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens read per second; 0 if none were read."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_rate(self) -> float:
        """Generated tokens per second after the first; 0 without any."""
        return (self.tokens - 1) / self.decode_s if self.decode_s else 0.0

    def bandwidth_share(self, bandwidth: float) -> float:
        """Return the share of `bandwidth` (bytes/s) that decoding uses; each token reads all weights and KV caches."""
        return self.decode_rate * (self.weight_bytes + self.cache_bytes) / bandwidth

    def to_raw(self) -> dict[str, Any]:
        return {**asdict(self), "prefill_rate": self.prefill_rate, "decode_rate": self.decode_rate}


class GeneratedText:
    """A text that TextBatch generates.

    prompt: tokens. encoded: outputs of an encoder by name, or the vectors of a part of the prompt. tokens: ids so far,
    including an end token. logprobs: of each of them, if Sampling asks for them. reason: '' while running, then 'end'
    (end token), 'stop' (stop string), 'length', 'closed' or 'failed'. failure: the error of a text that failed.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        sampling: Sampling,
        limits: Limits,
        started: float,
        encoded: Mapping[str, Any] | None = None,
    ) -> None:
        """Initialise; started: perf_counter() of the call."""
        self.prompt, self.sampling, self.limits, self.encoded = list(prompt), sampling, limits, encoded
        self.started = started
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.reason = ""
        self.failure: Exception | None = None
        self.metrics = GenerationMetrics(len(prompt))
        known = [t for t in prompt if t >= 0]  # others are vectors without a token
        self._pieces, self._stops = Detokenizer(tokenizer, known), StopStrings(limits.stops)
        self._random = np.random.default_rng(sampling.seed)

    @property
    def is_plain(self) -> bool:
        """Whether tokens after the first depend on the largest logit alone, which the device finds."""
        sampling = self.sampling
        return (
            sampling.is_greedy
            and sampling.repetition_penalty == 1
            and not self.limits.banned
            and not sampling.needs_row
        )

    @property
    def banned(self) -> frozenset[int]:
        """Tokens that must not be next."""
        return self.limits.banned if self.tokens else self.limits.banned_first

    @property
    def seen(self) -> set[int]:
        """Tokens that the repetition penalty counts."""
        if self.sampling.repetition_penalty == 1:
            return set()
        return {t for t in (*self.prompt, *self.tokens) if t >= 0}

    def draw(self) -> float:
        """Return the random number for the next token."""
        return 0.0 if self.sampling.is_greedy else float(self._random.random())

    def add(self, token: int) -> str:
        """Add a token; return the text that it completes, the rest of the text if it is the last one."""
        self.tokens.append(token)
        self.metrics.tokens += 1
        if token in self.limits.end_tokens:
            self.reason = "end"
            return self._end("")
        piece, met = self._stops.add(self._pieces.add(token))
        if met:
            self.reason = "stop"
            return piece
        if len(self.tokens) < self.limits.count:
            return piece
        self.reason = "length"
        return self._end(piece)

    def _end(self, piece: str) -> str:
        last, met = self._stops.add(self._pieces.end())
        return piece + last + ("" if met else self._stops.end())

    def close(self, failure: Exception | None = None) -> None:
        """End the text early, perhaps because of an error."""
        if not self.reason:
            self.reason, self.failure = "closed" if failure is None else "failed", failure
