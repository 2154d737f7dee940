"""Stream: a text as an iterator of pieces while it is generated, its stop strings and metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import OptionError
from .decoder import Decoder
from .logits_head import LogitsHead, last_row
from .sampling import Candidates, Sampling, TokenLogprobs, adjusted_candidates, logprobs_of, select_token
from .tokenizer import Detokenizer, Tokenizer

MAX_GREEDY_BATCH, MAX_GREEDY_S = 32, 0.03
"""Limits of a greedy batch: number of tokens, and seconds, because a reader waits for the text."""


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


class Stream:
    """Iterator of pieces of a text, each of whole characters; `close()` ends it early.

    tokens: ids so far, including an end token. logprobs: of each of them, if Sampling asks for them. reason: '' while
    running, then 'end' (end token), 'stop' (stop string), 'length' or 'closed'. metrics: metrics so far.
    """

    def __init__(
        self,
        decoder: Decoder,
        head: LogitsHead,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        rest: Sequence[int],
        sampling: Sampling,
        limits: Limits,
        weight_bytes: Callable[[], int],
        started: float,
    ) -> None:
        """Initialise; rest: prompt tokens that the decoder has not read. started: perf_counter() of the call."""
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.reason = ""
        self.metrics = GenerationMetrics(len(prompt), len(prompt) - len(rest))
        self._decoder, self._head, self._tokenizer = decoder, head, tokenizer
        self._prompt, self._rest = list(prompt), list(rest)
        self._sampling, self._limits = sampling, limits
        self._weight_bytes, self._started = weight_bytes, started
        # Greedy tokens depend on logits alone: the device can select them without the host.
        plain = sampling.is_greedy and sampling.repetition_penalty == 1 and not limits.banned and not sampling.needs_row
        self._on_device = plain and decoder.can_generate_greedy
        self._ready_tokens: deque[int] = deque()
        self._batch = 1
        self._random = np.random.default_rng(sampling.seed)
        self._pieces = self._write()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """End the text."""
        self._pieces.close()
        if not self.reason:
            self.reason = "closed"
            self._update_metrics()

    def _write(self) -> Generator[str]:
        pieces, stops = Detokenizer(self._tokenizer, self._prompt), StopStrings(self._limits.stops)
        while not self.reason:
            token = self._next()
            if token in self._limits.end_tokens:
                self.reason = "end"
                break
            piece, met = stops.add(pieces.add(token))
            if met:
                self.reason = "stop"
            elif len(self.tokens) >= self._limits.count:
                self.reason = "length"
            if self.reason:
                self._update_metrics()
            if piece:
                yield piece
        self._update_metrics()
        if self.reason != "stop":
            last, met = stops.add(pieces.end())
            if last := last if met else last + stops.end():
                yield last

    def _next(self) -> int:
        """Read the new tokens and select the next one."""
        started = time.perf_counter()
        metrics, is_first = self.metrics, not self.tokens
        if self._on_device and not is_first:
            token = self._next_greedy()
        else:
            logits = self._decoder.read(self._rest if is_first else self.tokens[-1:])
            if is_first:
                metrics.prefill_s = time.perf_counter() - started
            token = self._choose(logits, is_first)
        self.tokens.append(token)
        metrics.tokens += 1
        if is_first:
            metrics.first_token_s = time.perf_counter() - self._started
        else:
            metrics.decode_s += time.perf_counter() - started
        return token

    def _next_greedy(self) -> int:
        """Return the next greedy token; the device generates several at once if they take less than MOMENT_S."""
        if not self._ready_tokens:
            started = time.perf_counter()
            count = min(self._batch, self._limits.count - len(self.tokens))
            self._ready_tokens.extend(self._decoder.generate_greedy(self.tokens[-1], count))
            spent = time.perf_counter() - started
            if not self._decoder.ran_multi_step or spent > MAX_GREEDY_S:
                self._batch = max(1, count // 2) if self._decoder.ran_multi_step else 1
            elif spent < MAX_GREEDY_S / 2:
                self._batch = min(2 * self._batch, MAX_GREEDY_BATCH)
        return self._ready_tokens.popleft()

    def _choose(self, logits: Any, is_first: bool) -> int:
        sampling, penalty = self._sampling, self._sampling.repetition_penalty
        seen = {*self._prompt, *self.tokens} if penalty != 1 else set()
        banned = self._limits.banned_first if is_first else self._limits.banned

        def candidates(count: int) -> Candidates:
            return self._head.candidates(logits, count, sampling.temperature, penalty, seen, banned)

        draw = 0.0 if sampling.is_greedy else float(self._random.random())
        if sampling.needs_row:
            row = last_row(logits).astype(np.float32)
            changed = adjusted_candidates(row.copy(), sampling, self.tokens, seen, banned)
            token = select_token(changed, sampling, draw, lambda: changed)
            if sampling.logprobs is not None:
                self.logprobs.append(logprobs_of(row, token, sampling.logprobs))
            return token
        return select_token(candidates(sampling.candidates), sampling, draw, lambda: candidates(0))

    def _update_metrics(self) -> None:
        self.metrics.cache_bytes = self._decoder.cache_bytes
        self.metrics.weight_bytes = self._weight_bytes()


class StopStrings:
    """Passes text up to the first stop string; a possible beginning of one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        if any(not s for s in strings):
            raise OptionError("a stop string has at least one character")
        self._strings = tuple(strings)
        self._held = ""

    def add(self, piece: str) -> tuple[str, bool]:
        """Add text; return (text to emit, whether a stop string was found). The stop string is not emitted."""
        text = self._held + piece
        met = [i for s in self._strings if (i := text.find(s)) >= 0]
        if met:
            self._held = ""
            return text[: min(met)], True
        keep = max((_overlap(text, s) for s in self._strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def end(self) -> str:
        """Return the text that was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, string: str) -> int:
    """Return how many characters at the end of `text` are a beginning of `string`."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)


@dataclass
class GenerationMetrics:
    """Tokens, times and memory of one generation.

    prompt_tokens: length of the prompt; reused_tokens: prompt tokens already in the caches. prefill_s: seconds for
    reading the others. first_token_s: seconds from the call to the first token. tokens: number of generated tokens.
    decode_s: seconds for the tokens after the first, without the caller's time between pieces. weight_bytes: packed
    weights on the device. cache_bytes: size of the KV caches.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    tokens: int = 0
    decode_s: float = 0.0
    weight_bytes: int = 0
    cache_bytes: int = 0

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
