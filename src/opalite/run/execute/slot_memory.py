"""Memory of a Program's slots on a device: constants, what crosses, and intermediates - in the arena, or in whole
buffers from a pool for drivers on which sub-buffers are slow. Also where those lie in the arena, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ...cl.pools import BufferPool
from ...cl.runtime import Runtime
from ...cl.transfer import Crossing
from ...cl.weights import SharedWeight
from ...ir.device_family import SLOW_SUB_BUFFERS
from ...plan.program import DownloadStep, LaunchStep, Program, SlotArg, Step, Storage, UploadStep

M = TypeVar("M")


@dataclass(frozen=True)
class SlotMemory:
    """Memory objects by slot.

    crossings: how values of inputs and outputs are written and read, by slot. weights: keeps constants alive.
    """

    objects: dict[int, Any]
    crossings: dict[int, Crossing]
    weights: list[SharedWeight]


def allocate_slots(rt: Runtime, program: Program) -> SlotMemory:
    """Memory for every slot of `program`, constants uploaded. DeviceMemoryError if there is no room."""
    whole = pool_slots(program, rt.make_buffer_pool()) if SLOW_SUB_BUFFERS in rt.info.quirks else {}
    pooled = [s for s in program.slots if s.storage is Storage.DYNAMIC and s.image is None and s.id not in whole]
    arena = rt.make_arena([(s.offset, s.nbytes) for s in pooled]) if pooled else None
    images = [rt.make_image(w, h, dtype) for w, h, dtype in program.image_pool]
    found = SlotMemory({}, {}, [])
    objects = found.objects
    for slot in program.slots:
        if slot.id in whole:
            objects[slot.id] = whole[slot.id]
        elif slot.storage is Storage.STATIC:
            array, key = program.weights[slot.id], program.weight_keys.get(slot.id)
            weight = rt.share_weight(array, image=slot.image is not None, key=key)
            found.weights.append(weight)
            objects[slot.id] = weight.memory
        elif slot.image is not None:
            objects[slot.id] = images[slot.image_slot]
        elif slot.storage is Storage.SEPARATE or arena is None:
            crossing = found.crossings[slot.id] = Crossing(rt, slot.nbytes)
            objects[slot.id] = crossing.buffer
        else:
            objects[slot.id] = arena.region(slot.offset, slot.nbytes)
    sizes = {s.id: s.nbytes for s in program.slots}
    for step in program.steps:
        if isinstance(step, DownloadStep) and step.slot not in found.crossings:  # a weight
            found.crossings[step.slot] = Crossing(rt, sizes[step.slot], objects[step.slot])
    return found


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
