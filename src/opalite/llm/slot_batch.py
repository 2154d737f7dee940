"""SlotBatch: sequences that a decoder continues together, one token each in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OpaliteError
from ..run.api.options.session_options import argmax_name
from ..run.api.values.ort_value import OrtValue
from .decoder import Decoder
from .logits_head import last_row

if TYPE_CHECKING:
    from ..run.api.caches.model_state import State

Array = np.ndarray[Any, Any]
_WASTE = 64
"""Unused positions that caches may have, before they are made shorter."""
_PROBE = (72, 8)
"""Lengths of the sequences that show how a model pads: so far apart that wrong positions change logits."""
_TOLERANCE = 0.02
"""Of the largest logit, between a sequence alone and in a batch: rounding in half and in 8 bits included."""


@dataclass(eq=False)
class Slot:
    """The place of a sequence in a batch. length: the positions that it has read."""

    number: int
    length: int


class SlotBatch:
    """Sequences in the slots of one state, whose number is a power of two.

    A prompt is read by the decoder alone, and `join` copies its caches into a slot. ends_together: caches hold all
    sequences up to their common end, behind padding (models that concatenate); else each from the beginning up to an
    end of its own (GroupQueryAttention, TensorScatter).
    """

    def __init__(self, decoder: Decoder, ends_together: bool) -> None:
        self._decoder, self._ends_together = decoder, ends_together
        self._state: State | None = None
        self._states: dict[int, State] = {}  # by number of slots; those out of use hold no memory, but know their runs
        self._slots: list[Slot | None] = []
        self._end = 0  # positions of the caches

    @property
    def slots(self) -> list[Slot]:
        """The occupied slots."""
        return [s for s in self._slots if s is not None]

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return len(self._slots)

    @property
    def cache_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    @property
    def copies(self) -> str:
        """The reason why each step copies the caches; '' if it does not."""
        return "" if self._state is None else self._state.copies

    def join(self, expected: int = 1) -> Slot:
        """Copy the decoder's sequence into a free slot. expected: sequences that are to join, this one included."""
        own, length = self._decoder.state, len(self._decoder.tokens)
        assert own is not None
        if None not in self._slots:
            self._resize(len(self._slots) + expected, own)
        assert self._state is not None
        if length > self._end:
            self._set_end(length)
        slot = Slot(self._slots.index(None), length)
        self._state.copy_sequence(own, (0, slot.number), 0, self._start(slot), length)
        self._slots[slot.number] = slot
        return slot

    def leave(self, slot: Slot) -> None:
        """Free a slot, and the memory if it was the last one."""
        self._slots[slot.number] = None
        if not self.slots:
            assert self._state is not None
            self._state.reset(keep_memory=False)
            self._state, self._slots, self._end = None, [], 0

    @property
    def is_sparse(self) -> bool:
        """Whether half of the slots would do."""
        return 2 * len(self.slots) <= len(self._slots)

    def settle(self) -> None:
        """Use as few slots as hold the sequences."""
        assert self._state is not None
        self._resize(len(self.slots), self._state)

    def trim(self) -> None:
        """Use fewer positions if the longest sequences have left."""
        longest = max(slot.length for slot in self.slots)
        if self._end > longest + max(_WASTE, longest // 4):
            self._set_end(longest)

    def take_back(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Have the decoder continue a slot's sequence, whose positions are `tokens`, alone; the slot is free then."""
        assert self._state is not None
        self._decoder.take_sequence(self._state, slot.number, self._start(slot), tokens)
        self.leave(slot)

    def reorder(self, parents: Mapping[Slot, Slot]) -> int:
        """Have slots continue the sequences of others, equally long; return the bytes copied."""
        assert self._state is not None
        indices = list(range(len(self._slots)))
        for slot, parent in parents.items():
            indices[slot.number] = parent.number
        return self._state.reorder(indices)

    def step(self, tokens: Mapping[Slot, int], *, greedy: bool = False) -> Any:
        """Read a token in each occupied slot; return logits [slots, 1, vocabulary], or for `greedy` the next tokens."""
        assert self._state is not None
        inputs = self._decoder.inputs
        given, lengths = [0] * len(self._slots), [0] * len(self._slots)
        for slot, token in tokens.items():
            given[slot.number], lengths[slot.number] = token, slot.length
        feeds = inputs.batch_feeds(given, lengths, self._end, ends_together=self._ends_together)
        name = argmax_name(inputs.logits) if greedy else inputs.logits
        stay = not greedy and not self._decoder.session.device.on_host
        found = self._state.run(feeds, [name], on_device=stay)[0]
        for slot in tokens:
            slot.length += 1
        self._end += 1
        return found

    def _start(self, slot: Slot) -> int:
        return self._end - slot.length if self._ends_together else 0

    def _resize(self, count: int, like: State) -> None:
        """Have the least power of two of slots for `count` sequences. like: a state with the decoder's caches."""
        capacity = max(2, 1 << (count - 1).bit_length())
        if capacity == len(self._slots):
            return
        if capacity not in self._states:
            self._states[capacity] = self._decoder.new_state()
        made, before, kept = self._states[capacity], self._state, self.slots
        made.allocate(like, capacity, self._end)
        self._slots = [*kept, *[None] * (capacity - len(kept))]
        for number, slot in enumerate(kept):
            assert before is not None
            made.copy_sequence(before, (slot.number, number), 0, 0, self._end)
            slot.number = number
        if before is not None:
            before.reset(keep_memory=False)
        self._state = made

    def _set_end(self, end: int) -> None:
        """Let the caches end at `end`; sequences that end together move there."""
        assert self._state is not None
        before, self._end = self._end, end
        if end > before:
            self._state.set_length(end)
        if self._ends_together:
            for slot in self.slots:
                ends = before - slot.length, end - slot.length
                self._state.copy_sequence(self._state, (slot.number, slot.number), *ends, slot.length)
        if end < before:
            self._state.set_length(end)


def find_padding(decoder: Decoder) -> tuple[bool | None, str]:
    """(ends_together of a SlotBatch in which the model gives the logits that it gives alone, the reason if neither).

    Two sequences of different lengths are continued alone and in a batch, because names of inputs do not tell where a
    model takes positions from. The decoder has read another sequence afterwards.
    """
    if decoder.state is None:
        return None, "the model has no caches"
    if decoder.reads_alone:
        return None, "its prompts are read by an encoder or by another model"
    why = ""
    for ends_together in (False, True):
        batch = SlotBatch(decoder, ends_together)
        alone, tokens = [], {}
        try:
            for length in _PROBE:
                sequence = [3 + 7 * i % 61 for i in range(length + 1)]
                decoder.read(decoder.rewind(sequence[:-1]))
                tokens[batch.join()] = sequence[-1]
                alone.append(last_row(decoder.read(sequence[-1:])).astype(np.float32))
            found = batch.step(tokens)
            together = np.asarray(found.numpy() if isinstance(found, OrtValue) else found)[:2, -1].astype(np.float32)
        except OpaliteError as e:
            why = str(e)
            continue
        most = float(np.abs(alone).max())
        if not batch.copies and float(np.abs(together - alone).max()) <= _TOLERANCE * most:
            return ends_together, ""
        why = batch.copies or "it takes positions from the lengths of its inputs, which padding changes"
    return None, why
