"""LinkedKernels: persistent kernels in place of neighbouring launches of a program, which occupy the whole device.

After a run the host checks whether a group timed out in its wait for another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ....cl.programs.ptx_binary import assemble
from ....cl.queue.prepared_launch import PreparedLaunch
from ....plan.program import Storage
from ....ptx.linked_launch import NAME, SYNC_BYTES, pointers_of
from ..memory.io_transfer import UNBOUND, Bindings
from ..shape_instance import ShapeInstance
from .launch_parameter_buffer import ArgumentBlock, LaunchParameterBuffer
from .linked_stretch import BufferRange, BufferRanges, Stretch, find_buffer_ranges, grid_shape

_POISON = 0x5A


class LinkedKernels:
    """The launches that replace steps of a program: the first step of a stretch has its kernel, the others have none.

    table: of dynamic parameters, if any. kernels: their number. steps: the number of steps that they compute.
    """

    def __init__(
        self,
        instance: ShapeInstance,
        stretches: Sequence[Stretch],
        table: LaunchParameterBuffer | None,
        programs: dict[str, Any],
    ) -> None:
        """Prepare the launches. stretches: of a StretchLinker. programs: assembled before, by text; gets the others."""
        rt, program, self.table = instance.rt, instance.program, table
        self._rt, self._programs = rt, programs
        places = find_buffer_ranges(instance)
        self._state = [s for s in program.slots if s.storage is Storage.RESERVED and s.id in places]
        self._bound = UNBOUND
        self.shape = grid_shape(rt)
        self._blocks: list[ArgumentBlock] = []
        self._memory: list[Any] = []  # kept alive for its addresses
        self._own: dict[int, tuple[int, int]] = {}  # address and bytes of each slot's memory, before it is bound
        self.launches: dict[int, list[PreparedLaunch]] = {}
        self.steps = self.kernels = 0
        self._sync = rt.allocate(SYNC_BYTES)  # barrier counters of all kernels
        rt.fill(self._sync, 0, SYNC_BYTES)
        self._written: dict[int, BufferRange] = {}  # by slot
        for stretch in stretches:
            self._prepare(stretch, places)
        self._texts = {stretch.text for stretch in stretches}
        self._flag = rt.pinned(4).view(np.uint32)
        users = Counter(id(p.whole) for p in places.values())
        self._shared = {slot for slot, p in places.items() if p.first or users[id(p.whole)] > 1}

    def record_failure(self, why: str) -> None:
        """Record, for later processes too, that the kernels must not be launched."""
        for text in self._texts:
            self._rt.trials.record_failure(text.encode(), why)

    def _prepare(self, stretch: Stretch, places: BufferRanges) -> None:
        """Make the launch of a stretch."""
        rt, programs = self._rt, self._programs
        if stretch.text not in programs:
            programs[stretch.text] = assemble(rt.context, rt.device, stretch.text)
        self._written.update((slot, places[slot]) for slot in stretch.written)
        memory = [places[slot].whole for slot in stretch.memory]
        table = [self.table.buffer] if self.table is not None and stretch.moves else []
        state = {s.id for s in self._state}
        self._memory += [m for m, slot in zip(memory, stretch.memory, strict=True) if slot not in state]
        at = rt.addresses_of([self._sync, *memory, *table])
        pointers = pointers_of(at[0], at[-1] if table else 0, at[1 : 1 + len(memory)])
        block = ArgumentBlock(pointers, stretch.memory)
        items, threads = self.shape.groups * self.shape.threads, self.shape.threads
        launch = rt.prepare(programs[stretch.text], NAME, [block.argument], (items,), (threads,), stretch.label)
        block.launch = launch
        self._own.update((slot, (at[i], memory[i - 1].size)) for i, slot in enumerate(stretch.memory, 1))
        self._blocks.append(block)
        self.launches[stretch.numbers[0]] = [launch]
        self.launches.update((i, []) for i in stretch.numbers[1:])
        self.kernels += 1
        self.steps += len(stretch.numbers)

    def bind(self, bound: Bindings) -> bool:
        """Have the kernels access these buffers.

        Returns False if they may not: the order of steps assumes that slots do not overlap.
        """
        before = self._bound
        if bound is before:
            return True
        used = {slot: staging for slot, staging in bound.items() if slot in self._own}
        if not self._shared.isdisjoint(used):
            return False
        fresh = [staging for staging in used.values() if staging.device_address is None]
        if fresh:
            for staging, address in zip(fresh, self._rt.addresses_of([f.buffer for f in fresh]), strict=True):
                staging.device_address = address
        if not self._are_apart(used):
            return False
        changed = {slot for slot in before.keys() | bound.keys() if bound.get(slot) is not before.get(slot)}
        for block in self._blocks:
            block.bind(changed, bound)
        self._bound = bound
        return True

    def _are_apart(self, used: Bindings) -> bool:
        """Whether bound buffers overlap neither each other nor memory of other slots."""
        ranges = sorted((s.device_address or 0, (s.device_address or 0) + s.nbytes) for s in used.values())
        if any(last > following for (_, last), (following, _) in pairwise(ranges)):
            return False
        own = self._own_ranges
        for first, last in ranges:
            for begin, end, slot in own[max(bisect_left(own, (first,)) - 1, 0) :]:
                if begin >= last:
                    break
                if end > first and slot not in used:
                    return False
        return True

    @cached_property
    def _own_ranges(self) -> list[tuple[int, int, int]]:
        """First and last address of each buffer of its own in order, and a slot in it; they do not overlap."""
        found = {address: (address, address + nbytes, slot) for slot, (address, nbytes) in self._own.items()}
        return sorted(found.values())

    def _state_ranges(self) -> list[BufferRange]:
        """The state; a program for the longest cache may name more bytes than the buffer has."""
        buffers = [(s, self._bound[s.id].buffer) for s in self._state if s.id in self._bound]
        return [BufferRange(buffer, 0, min(s.nbytes, buffer.size)) for s, buffer in buffers]

    def poison_outputs(self) -> None:
        """Fill all outputs except state with a pattern: old values would hide a write that the linked kernel skips."""
        state = {s.id for s in self._state}
        for slot, place in self._written.items():
            if slot in self._bound and slot not in state:
                self._rt.fill(self._bound[slot].buffer, _POISON, self._bound[slot].nbytes)
            elif slot not in state:
                self._rt.fill(place.whole, _POISON, place.last - place.first, place.first)
        self._rt.finish()

    def read_state(self) -> list[Any]:
        """The contents of the state buffers."""
        places = self._state_ranges()
        found = [np.empty(p.last - p.first, np.uint8) for p in places]
        for place, array in zip(places, found, strict=True):
            self._rt.read(place.whole, array, place.first)
        return found

    def restore_state(self, state: Sequence[Any]) -> None:
        """Write contents that `read_state` returned."""
        for place, array in zip(self._state_ranges(), state, strict=True):
            self._rt.write(place.whole, array, place.first)

    def enqueue_flag_read(self) -> None:
        """Enqueue, after the launches of a run, the read of the flag that a wait between groups timed out."""
        self._rt.read(self._sync, self._flag, wait=False)

    def has_failed(self) -> bool:
        """Whether a wait between groups timed out, once the queue has finished. Resets the flag for the next run."""
        if not self._flag[0]:
            return False
        self._rt.fill(self._sync, 0, SYNC_BYTES)
        self._flag[0] = 0
        return True
