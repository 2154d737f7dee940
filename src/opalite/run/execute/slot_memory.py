"""Memory of a Program's intermediates: where they lie in the arena and when, and whole buffers from a pool for drivers
on which sub-buffers of an arena are slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from ...cl.pools import BufferPool
from ...plan.program import (
    DownloadStep,
    LaunchStep,
    Program,
    SlotArg,
    Step,
    Storage,
    UploadStep,
)

M = TypeVar("M")


@dataclass(frozen=True)
class Region:
    """`nbytes` of the arena from byte `offset` on, in use from step `first` of a Program to step `last`.

    within: the label of the tensor whose region it is a part of; '' for a region of its own.
    """

    label: str
    offset: int
    nbytes: int
    first: int
    last: int
    within: str = ""


def arena_regions(program: Program) -> list[Region]:
    """The regions of the arena that the Program's steps use. What holds others is in use while any of them is."""
    holders = {s.id: s.within for s in program.slots if s.within >= 0}
    lives: dict[int, tuple[int, int]] = {}
    for i, step in enumerate(program.steps):
        for slot in _slots_of(step):
            for number in (slot, holders.get(slot, slot)):
                lives[number] = (lives.get(number, (i, i))[0], i)
    labels = {s.id: s.label for s in program.slots}
    pooled = [s for s in program.slots if s.storage is Storage.DYNAMIC and s.image is None and s.id in lives]
    return [Region(s.label, s.offset, s.nbytes, *lives[s.id], labels.get(s.within, "")) for s in pooled]


def pool_slots(program: Program, pool: BufferPool[M]) -> dict[int, M]:
    """A buffer for each DYNAMIC slot that is no image, reused once the last step that uses the slot is done.

    Slots that lie in others', and those that hold them, are left out: they need an arena.
    """
    nested = {n for s in program.slots if s.within >= 0 for n in (s.id, s.within)}
    dynamic = {
        s.id: s.nbytes for s in program.slots if s.storage is Storage.DYNAMIC and s.image is None and s.id not in nested
    }
    last: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        last |= dict.fromkeys(_slots_of(step), i)
    found: dict[int, M] = {}
    for i, step in enumerate(program.steps):
        used = [s for s in dict.fromkeys(_slots_of(step)) if s in dynamic]
        for slot in used:
            if slot not in found:
                found[slot] = pool.take(dynamic[slot])
        for slot in used:
            if last[slot] == i:
                pool.give_back(found[slot])
    for slot, nbytes in dynamic.items():
        if slot not in found:  # no step touches it
            found[slot] = pool.take(nbytes)
    return found


def _slots_of(step: Step) -> Iterator[int]:
    if isinstance(step, LaunchStep):
        yield from (a.slot for a in step.args if isinstance(a, SlotArg))
    elif isinstance(step, UploadStep | DownloadStep):
        yield step.slot
