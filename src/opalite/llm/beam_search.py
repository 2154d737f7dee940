"""Beam search: the most probable text, of several that are continued at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, OptionError
from ..run.api.values.ort_value import OrtValue
from .decoder import Decoder
from .generated_text import GeneratedText
from .logits_head import LogitsHead, last_row
from .sampling import Candidates, adjusted_candidates
from .slot_batch import Slot, SlotBatch

_MOST_BEAMS = 64


@dataclass(frozen=True)
class _Beam:
    """A text under construction. score: the sum of its tokens' log-probabilities."""

    tokens: tuple[int, ...]
    score: float
    slot: Slot | None = None


class BeamSearch:
    """A search for one text. Beams are the slots of a batch, all equally long."""

    def __init__(
        self, decoder: Decoder, head: LogitsHead, text: GeneratedText, beams: int, length_penalty: float
    ) -> None:
        """OptionError for a number out of range, InputError for a model whose caches are not one decoder's."""
        if not 1 < beams <= _MOST_BEAMS:
            raise OptionError(f"beams is a number from 1 to {_MOST_BEAMS}, got {beams!r}")
        if decoder.state is None or decoder.reads_alone:
            raise InputError("a beam search needs a decoder with caches, and no encoder or second model for prompts")
        self._decoder, self._head, self._text = decoder, head, text
        self._count, self._length_penalty = beams, length_penalty
        self._batch = SlotBatch(decoder, ends_together=True)
        self._ended: list[tuple[float, tuple[int, ...]]] = []  # the best texts by score for their length

    def run(self) -> str:
        """Generate the text; return it."""
        text, metrics = self._text, self._text.metrics
        started = time.perf_counter()
        rest = self._decoder.rewind(text.prompt)
        metrics.reused_tokens = len(text.prompt) - len(rest)
        logits = self._decoder.read(rest)
        metrics.prefill_s = time.perf_counter() - started
        beams = self._advance([_Beam((), 0.0)], logits)
        metrics.first_token_s = time.perf_counter() - text.started
        started = time.perf_counter()
        slots = [self._batch.join() for _ in beams]
        beams = [_Beam(b.tokens, b.score, slot) for b, slot in zip(beams, slots, strict=True)]
        while beams and len(beams[0].tokens) < text.limits.count and not self._is_decided(beams):
            found = self._batch.step({b.slot: b.tokens[-1] for b in beams if b.slot is not None})
            beams = self._place(self._advance(beams, found), slots)
        for beam in beams:
            self._end(beam)
        metrics.cache_bytes = self._batch.cache_bytes
        metrics.decode_s = time.perf_counter() - started
        _, tokens = max(self._ended)
        return "".join(map(text.add, tokens))

    def _advance(self, beams: Sequence[_Beam], logits: Any) -> list[_Beam]:
        """The best continuations, each with the slot of its parent; those that an end token completes are kept."""
        found = self._candidates(beams, logits)
        each = [
            (beam.score + float(logit) - row.log_sum, -number, int(token))
            for number, (beam, row) in enumerate(zip(beams, found, strict=True))
            for logit, token in zip(row.logits, row.tokens, strict=True)
        ]
        made: list[_Beam] = []
        for rank, (score, number, token) in enumerate(sorted(each, reverse=True)):
            parent = beams[-number]
            beam = _Beam((*parent.tokens, token), score, parent.slot)
            if token not in self._text.limits.end_tokens:
                made.append(beam)
            elif rank < self._count:
                self._end(beam)
            if len(made) == self._count:
                break
        return made

    def _candidates(self, beams: Sequence[_Beam], logits: Any) -> list[Candidates]:
        """The likeliest tokens of each beam: of twice as many, enough remain if all beams may end."""
        text, count = self._text, 2 * self._count
        sampling, banned = text.sampling, text.limits.banned if beams[0].tokens else text.limits.banned_first
        penalty = sampling.repetition_penalty
        seen = [{*text.prompt, *beam.tokens} if penalty != 1 else set[int]() for beam in beams]
        rows = [0 if beam.slot is None else beam.slot.number for beam in beams]
        if sampling.needs_row:
            host = logits.numpy() if isinstance(logits, OrtValue) else logits
            return [
                adjusted_candidates(last_row(host, row).astype(np.float32), sampling, beam.tokens, own, banned)
                for row, beam, own in zip(rows, beams, seen, strict=True)
            ]
        texts = max(self._batch.capacity, 1)
        by_row = dict(zip(rows, seen, strict=True))
        found = self._head.candidates_of_texts(
            logits, count, [1.0] * texts, [penalty] * texts, [by_row.get(i, ()) for i in range(texts)], banned
        )
        return [found[row] for row in rows]

    def _place(self, beams: list[_Beam], slots: Sequence[Slot]) -> list[_Beam]:
        """Give each beam a slot; one of those that continue a parent stays in its slot, the others are copied."""
        free = [slot for slot in slots if all(beam.slot is not slot for beam in beams)]
        taken: set[Slot] = set()
        parents: dict[Slot, Slot] = {}
        made = []
        for beam in beams:
            assert beam.slot is not None
            slot = beam.slot if beam.slot not in taken else free.pop()
            parents[slot] = beam.slot
            taken.add(slot)
            made.append(_Beam(beam.tokens, beam.score, slot))
        self._text.metrics.moved_bytes += self._batch.reorder(parents)
        return made

    def _end(self, beam: _Beam) -> None:
        score = beam.score / len(beam.tokens) ** self._length_penalty
        self._ended = sorted([*self._ended, (score, beam.tokens)], reverse=True)[: self._count]

    def _is_decided(self, beams: Sequence[_Beam]) -> bool:
        """Whether as many texts have ended as there are beams, all better than what the beams are now."""
        best = max(beam.score for beam in beams) / len(beams[0].tokens) ** self._length_penalty
        return len(self._ended) == self._count and self._ended[-1][0] >= best
