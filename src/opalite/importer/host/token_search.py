"""Token selection for BeamSearch, GreedySearch, Sampling and WhisperBeamSearch: logits processors, beams, sampling.

The order of processors and the handling of end tokens follow onnxruntime, so that its models give the same tokens.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from ...ir import Array

LOWEST = np.finfo(np.float32).min
_LOWER_BEAMS = np.float32(-1e9)  # initial score of all beams but the first of a batch entry, so that beams differ

# Whisper tokens relative to the end-of-text token, and two absolute ones.
_BEGINS, _TRANSLATES, _TRANSCRIBES = 1, 50358, 50359
_LM_STARTS, _NO_TIMES, _FIRST_TIME = 105, 106, 107
_LATEST_FIRST_TIME = 50


@dataclass(frozen=True)
class LogitsProcessors:
    """Logits processors for the scores [B * beams, V] of the next tokens, in order. 0 or None: disabled.

    vocab_mask[V], prefix_mask[B,V] (first token only): tokens with 0 are never selected. presence_mask[B,V].
    """

    eos: int
    repetition_penalty: float = 1.0
    ngram: int = 0
    vocab_mask: Array | None = None
    prefix_mask: Array | None = None
    min_length: int = 0
    temperature: float = 1.0
    presence_mask: Array | None = None
    presence_penalty: float = 0.0
    timestamps: bool = False

    def apply(self, scores: Array, sequences: Array, first: bool) -> None:
        """Change `scores` in place. sequences [B * beams, length]: the tokens so far."""
        rows = np.arange(len(scores))[:, None]
        if self.repetition_penalty != 1.0:
            old = scores[rows, sequences]
            penalty = np.float32(self.repetition_penalty)
            scores[rows, sequences] = np.where(old < 0, old * penalty, old / penalty)
        if self.ngram:
            self._forbid_repeats(scores, sequences)
        if self.vocab_mask is not None:
            scores[:, self.vocab_mask == 0] = LOWEST
        if self.prefix_mask is not None and first:
            beams = len(scores) // len(self.prefix_mask)
            scores[np.repeat(self.prefix_mask == 0, beams, axis=0)] = LOWEST
        if sequences.shape[1] < self.min_length:
            scores[:, self.eos] = LOWEST
        if self.temperature > 0 and self.temperature != 1.0:
            scores /= np.float32(self.temperature)
        if self.presence_mask is not None and self.presence_penalty:
            scores -= (self.presence_mask * np.float32(self.presence_penalty)).astype(np.float32)
        if self.timestamps:
            for row, sequence in zip(scores, sequences, strict=True):
                self._apply_timestamp_rules(row, sequence)

    def _forbid_repeats(self, scores: Array, sequences: Array) -> None:
        length, n = sequences.shape[1], self.ngram
        if n > length:
            return
        windows = np.lib.stride_tricks.sliding_window_view(sequences, n, axis=1)
        seen = (windows[:, :, : n - 1] == sequences[:, None, length - n + 1 :][:, :, : n - 1]).all(axis=2)
        row, place = np.nonzero(seen)
        scores[row, windows[row, place, n - 1]] = LOWEST

    def _apply_timestamp_rules(self, row: Array, sequence: Array) -> None:
        """Apply Whisper's timestamp rules: timestamps come in pairs and do not decrease; some tokens are forbidden."""
        begin = self.eos + _FIRST_TIME
        is_time = sequence >= begin
        sample = int(np.argmax(is_time)) + 1 if is_time.any() else len(sequence)
        row[[self.eos + _NO_TIMES, self.eos + _LM_STARTS]] = LOWEST
        if len(sequence) > sample:
            row[[t for t in (self.eos + _BEGINS, _TRANSLATES, _TRANSCRIBES) if t < len(row)]] = LOWEST
        last = bool(is_time[-1])
        one_before = len(sequence) <= sample or bool(is_time[-2])
        if last and one_before:
            row[begin:] = LOWEST
        elif last:
            row[: self.eos] = LOWEST
        if is_time.any():
            latest = int(sequence[is_time][-1])
            row[begin : latest + (0 if last and not one_before else 1)] = LOWEST
        if len(sequence) == sample:
            row[begin + _LATEST_FIRST_TIME + 1 :] = LOWEST


def log_softmax(logits: Array) -> Array:
    """Compute log-softmax of rows in float32."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float32)), np.float32)


@dataclass
class Hypotheses:
    """The best finished sequences of a batch entry, as many as beams: a heap with the worst first."""

    beams: int
    length_penalty: float
    stops_early: bool
    found: list[tuple[float, int, Array]] = field(default_factory=list)

    def add(self, sequence: Array, score: float) -> None:
        """Add a sequence if it is among the best."""
        mean = np.float32(score / len(sequence) ** self.length_penalty)
        if len(self.found) < self.beams or mean > self.found[0][0]:
            heapq.heappush(self.found, (float(mean), -len(self.found), sequence))
            if len(self.found) > self.beams:
                heapq.heappop(self.found)

    def is_done(self, best: float, length: int) -> bool:
        """Whether no better sequence can follow; `best`: the best score of unfinished ones of `length` tokens."""
        if len(self.found) < self.beams:
            return False
        return self.stops_early or bool(self.found[0][0] >= np.float32(best / length**self.length_penalty))


class BeamSearch:
    """Beam search over `batch` entries with `beams` sequences each."""

    def __init__(self, sequences: Array, batch: int, beams: int, pad: int, eos: int, penalty: float, early: bool):
        """Initialise with the prompts, sequences [batch * beams, length]."""
        self.sequences = sequences
        self.batch, self.beams, self.pad, self.eos = batch, beams, pad, eos
        self.scores = np.zeros(batch * beams, np.float32)
        self.scores.reshape(batch, beams)[:, 1:] = _LOWER_BEAMS
        self.finished = [Hypotheses(beams, penalty, early) for _ in range(batch)]
        self.done = [False] * batch

    def choose(self, scores: Array) -> tuple[Array, Array]:
        """Select (tokens, parent beams) [batch * beams] and append them to `sequences`.

        scores [batch * beams, V]: log probabilities summed over each sequence.
        """
        words, beams, length = scores.shape[1], self.beams, self.sequences.shape[1]
        flat = scores.reshape(self.batch, beams * words)
        count = min(2 * beams, flat.shape[1])
        best = np.argsort(-flat, axis=1, kind="stable")[:, :count]
        tokens = np.full((self.batch, beams), self.pad, np.int32)
        parents = np.zeros((self.batch, beams), np.int32)
        sums = np.zeros((self.batch, beams), np.float32)
        for b in range(self.batch):
            if self.done[b]:
                continue
            at = 0
            for rank, place in enumerate(best[b]):
                beam, token, score = b * beams + place // words, place % words, flat[b, place]
                if token == self.eos:
                    if rank < beams:
                        self.finished[b].add(self.sequences[beam].copy(), float(score))
                else:
                    tokens[b, at], parents[b, at], sums[b, at] = token, beam, score
                    at += 1
                if at == beams:
                    break
            self.done[b] = self.finished[b].is_done(float(flat[b, best[b, 0]]), length)
        self.scores = sums.reshape(-1)
        self.sequences = np.concatenate([self.sequences[parents.reshape(-1)], tokens.reshape(-1, 1)], axis=1)
        return tokens.reshape(-1), parents.reshape(-1)

    def results(self, count: int, length: int) -> tuple[Array, Array]:
        """Return the best `count` sequences [batch, count, length], padded, and their scores [batch, count]."""
        found = np.full((self.batch, count, length), self.pad, np.int32)
        scores = np.zeros((self.batch, count), np.float32)
        for b in range(self.batch):
            if not self.done[b]:
                for beam in range(b * self.beams, (b + 1) * self.beams):
                    self.finished[b].add(self.sequences[beam], float(self.scores[beam]))
            for i, (score, _, sequence) in enumerate(sorted(self.finished[b].found, key=lambda f: -f[0])[:count]):
                found[b, i, : len(sequence)] = sequence
                scores[b, i] = score
        return found, scores


class MinStdRandom:
    """Random engine of libstdc++ (minstd_rand0): x' = 16807 x mod 2^31 - 1; a double takes two draws."""

    _MODULUS = 2147483647

    def __init__(self, seed: int) -> None:
        self._state = seed % self._MODULUS or 1

    def _draw(self) -> int:
        self._state = self._state * 16807 % self._MODULUS
        return self._state - 1

    def uniform(self) -> float:
        """Return a number in [0, 1)."""
        span = self._MODULUS - 1
        low, high = self._draw(), self._draw()
        return min((low + high * float(span)) / (float(span) * float(span)), float(np.nextafter(1.0, 0.0)))


@dataclass(frozen=True)
class NucleusSampler:
    """Nucleus sampling among the likeliest tokens with total probability `top_p`; other scores become `filtered`."""

    top_p: float
    filtered: float
    keep: int
    custom: bool

    def draw(self, scores: Array, random: MinStdRandom) -> Array:
        """Draw a token for each row of scores [B,V], which are filtered in place."""
        tokens = np.empty(len(scores), np.int32)
        for b, row in enumerate(scores):
            order = np.argsort(-row if self.custom else row, kind="stable")
            ordered = row[order]
            exps = np.exp(ordered - ordered.max())
            sums = np.cumsum(exps / exps.sum(dtype=np.float32), dtype=np.float32)
            if self.custom:
                row[order[1:][sums[:-1] > self.top_p]] = self.filtered
            else:
                able = len(row) - self.keep
                cut = sums[: max(able, 1)] <= np.float32(1 - np.float32(self.top_p))
                row[order[: max(able, 1)][cut]] = self.filtered
            weights = np.exp(row.astype(np.float64) - float(row.max()))
            total = np.cumsum(weights)
            tokens[b] = min(int(np.searchsorted(total, random.uniform() * total[-1], side="right")), len(row) - 1)
        return tokens
