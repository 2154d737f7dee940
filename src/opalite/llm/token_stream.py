"""Stream: a text as it is written, piece by piece."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .decoder import Decoder
from .generation_metrics import GenerationMetrics
from .logits_head import LogitsHead
from .sampling import Candidates, Sampling, pick
from .stop_strings import StopStrings
from .tokenizer import Pieces, Tokenizer

AT_ONCE, MOMENT_S = 32, 0.03
"""Tokens that come at once at most, and the time that they may take: somebody reads them."""


@dataclass(frozen=True)
class Limits:
    """Where a text ends: after `count` tokens, at one of the strings `stops`, at one of the tokens `ends`; and the
    tokens that never come, and that do not come first."""

    count: int
    stops: tuple[str, ...]
    ends: frozenset[int]
    banned: frozenset[int] = frozenset()
    banned_first: frozenset[int] = frozenset()


class Stream:
    """The pieces of a text, whole characters each; joined they are the text. Ends early by `close()`.

    tokens: those written so far, one that ends the text included. reason: '' while it goes on, then 'end' (a token of
    the model's), 'stop' (a stop string), 'length' or 'closed'. figures: what it took so far.
    """

    def __init__(
        self,
        decoder: Decoder,
        head: LogitsHead,
        words: Tokenizer,
        prompt: Sequence[int],
        rest: Sequence[int],
        sampling: Sampling,
        limits: Limits,
        weight_bytes: Callable[[], int],
        started: float,
    ) -> None:
        """rest: the tokens at the prompt's end that the decoder has not read. started: perf_counter() of the call."""
        self.tokens: list[int] = []
        self.reason = ""
        self.figures = GenerationMetrics(len(prompt), len(prompt) - len(rest))
        self._decoder, self._head, self._words = decoder, head, words
        self._prompt, self._rest = list(prompt), list(rest)
        self._sampling, self._limits = sampling, limits
        self._weight_bytes, self._started = weight_bytes, started
        # Tokens that follow from logits alone, the device can take without the host.
        plain = sampling.is_greedy and sampling.repetition_penalty == 1 and not limits.banned
        self._follows = plain and decoder.may_follow
        self._ahead: deque[int] = deque()
        self._at_once = 1
        self._random = np.random.default_rng(sampling.seed)
        self._pieces = self._write()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """End the text here."""
        self._pieces.close()
        if not self.reason:
            self.reason = "closed"
            self._tell()

    def _write(self) -> Generator[str]:
        pieces, stops = Pieces(self._words, self._prompt), StopStrings(self._limits.stops)
        while not self.reason:
            token = self._next()
            if token in self._limits.ends:
                self.reason = "end"
                break
            piece, met = stops.add(pieces.add(token))
            if met:
                self.reason = "stop"
            elif len(self.tokens) >= self._limits.count:
                self.reason = "length"
            if self.reason:
                self._tell()
            if piece:
                yield piece
        self._tell()
        if self.reason != "stop":
            last, met = stops.add(pieces.end())
            if last := last if met else last + stops.end():
                yield last

    def _next(self) -> int:
        """Read what is new, and choose the token after it."""
        started = time.perf_counter()
        figures, is_first = self.figures, not self.tokens
        if self._follows and not is_first:
            token = self._follow()
        else:
            logits = self._decoder.read(self._rest if is_first else self.tokens[-1:])
            if is_first:
                figures.prefill_s = time.perf_counter() - started
            token = self._choose(logits, is_first)
        self.tokens.append(token)
        figures.tokens += 1
        if is_first:
            figures.first_token_s = time.perf_counter() - self._started
        else:
            figures.decode_s += time.perf_counter() - started
        return token

    def _follow(self) -> int:
        """The likeliest token, of those that the device has written on its own where it does that: as many at once as
        take a moment."""
        if not self._ahead:
            started = time.perf_counter()
            count = min(self._at_once, self._limits.count - len(self.tokens))
            self._ahead.extend(self._decoder.follow(self.tokens[-1], count))
            spent = time.perf_counter() - started
            if not self._decoder.ran_multi_step or spent > MOMENT_S:
                self._at_once = max(1, count // 2) if self._decoder.ran_multi_step else 1
            elif spent < MOMENT_S / 2:
                self._at_once = min(2 * self._at_once, AT_ONCE)
        return self._ahead.popleft()

    def _choose(self, logits: Any, is_first: bool) -> int:
        sampling, penalty = self._sampling, self._sampling.repetition_penalty
        seen = {*self._prompt, *self.tokens} if penalty != 1 else set()
        banned = self._limits.banned_first if is_first else self._limits.banned

        def likeliest(count: int) -> Candidates:
            return self._head.candidates(logits, count, sampling.temperature, penalty, seen, banned)

        draw = 0.0 if sampling.is_greedy else float(self._random.random())
        return pick(likeliest(sampling.candidates), sampling, draw, lambda: likeliest(0))

    def _tell(self) -> None:
        self.figures.cache_bytes = self._decoder.cache_bytes
        self.figures.weight_bytes = self._weight_bytes()
