"""Stretch: neighbouring steps that one linked kernel computes, as plain data, and the memory that they access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....cl.memory.device_pointers import buffer_and_offset
from ....cl.runtime import Runtime
from ....ir.device.device_family import PTX_WGMMA
from ....plan.program import Storage
from ....ptx.linked_launch import SHARED, GridShape
from ..shape_instance import ShapeInstance

THREADS = 384
"""Threads of a group. The kernels that use most registers, 168, still fit."""
MOST_SHARED = 200 << 10
"""Bytes of shared memory of a group on Hopper, which has 227 KiB; the rest is the L1 cache."""


@dataclass(frozen=True)
class BufferRange:
    """The memory of a slot: bytes `first` to `last` of the buffer `whole`."""

    whole: Any
    first: int
    last: int


@dataclass(frozen=True)
class Stretch:
    """Steps, by their numbers, that the kernel of `text` computes.

    memory: for each parameter, a slot in its buffer. written: slots that the steps write. moves: parameters are read
    from a LaunchParameterBuffer.
    """

    numbers: Sequence[int]
    memory: Sequence[int]
    written: Sequence[int]
    text: str
    moves: bool
    label: str


def grid_shape(rt: Runtime) -> GridShape:
    """The groups of persistent kernels on a device."""
    return GridShape(rt.info.compute_units, THREADS, MOST_SHARED if PTX_WGMMA in rt.info.quirks else SHARED)


BufferRanges = Mapping[int, BufferRange]
"""Memory of slots, by number."""


def find_buffer_ranges(instance: ShapeInstance) -> dict[int, BufferRange]:
    """The memory of the slots of a program that are buffers. Inputs and outputs have their own, state what is bound."""
    found = {}
    for slot in instance.program.slots:
        if slot.image is None:
            memory, offset = instance.placed.locate(slot)
            if slot.storage is Storage.RESERVED and slot.id in instance.io.bound:
                memory, offset = instance.io.bound[slot.id].buffer, 0
            whole, first = buffer_and_offset(memory, offset)
            found[slot.id] = BufferRange(whole, first, first + max(slot.nbytes, 1))
    return found


def memory_layout(instance: ShapeInstance) -> list[tuple[int, int, int, int]]:
    """The memory of a program as numbers: (slot, number of its buffer, first, last); linked kernels depend on it."""
    places, numbers = find_buffer_ranges(instance), dict[int, int]()
    return [(slot, numbers.setdefault(id(p.whole), len(numbers)), p.first, p.last) for slot, p in places.items()]
