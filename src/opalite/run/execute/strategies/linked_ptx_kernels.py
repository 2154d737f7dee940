"""LinkedKernels: neighbouring launches of a program linked into persistent kernels, which occupy the whole device.

For devices whose programs are PTX (ptx/persistent_kernel.py). There are as many groups as multiprocessors, so that all
of them run at the same time, unless another process uses a part of the device. After a run the host checks whether a
group waited for another one in vain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ....cl.memory.device_pointers import buffer_and_offset
from ....cl.programs.build_parallelism import parallel_map
from ....cl.programs.kernel_trials import Trial
from ....cl.programs.ptx_binary import assemble, ptx_of
from ....cl.queue.prepared_launch import PreparedLaunch
from ....errors import OpaliteError
from ....ir.device.device_family import PTX_WGMMA
from ....plan.program import LaunchStep, LocalArg, Program, ScalarArg, SlotArg, Step, Storage
from ....ptx.find_written_params import written
from ....ptx.inline_kernel import pointers_of
from ....ptx.parse_kernel import PtxKernelError, parse_kernel
from ....ptx.persistent_kernel import NAME, SYNC_BYTES, GridShape, head_of, link, refusal
from ....ptx.step_dependencies import (
    SHARED,
    DynamicNumber,
    LinkedStep,
    Memory,
    Number,
    argument_mismatch,
    find_step_order,
)
from ..memory.io_transfer import UNBOUND, Bindings
from ..shape_instance import ShapeInstance
from ..step_schedule import steps_outside
from .launch_parameter_buffer import ArgumentBlock, LaunchParameterBuffer

THREADS = 384
"""Threads of a group. The kernels that use most registers, 168, still fit."""
MOST_STEPS, MOST_PARAMS = 100, 400
"""Limits of one linked kernel: steps for its compile time, parameters for its launch."""
LEAST_STEPS = 2
MOST_SHARED = 200 << 10
"""Bytes of shared memory of a group on Hopper, which has 227 KiB; the rest is the L1 cache."""
MOST_KEPT = 24 << 20
"""Bytes of constants up to which they stay in the L2 cache from run to run."""
_POISON = 0x5A
MAX_STATE_BYTES = 1 << 30
"""Bytes of state that a trial saves and restores."""


class LinkError(OpaliteError):
    """Launches cannot be linked; the message says why."""


@dataclass(frozen=True)
class BufferRange:
    """The memory of a slot: bytes `first` to `last` of the buffer `whole`."""

    whole: Any
    first: int
    last: int


@dataclass(frozen=True)
class Stretch:
    """Steps, by their numbers, that the kernel of `text` computes. safe: returns a slower text that is more robust.

    memory: for each parameter, a slot in its buffer. written: slots that the steps write. moves: parameters are read
    from a LaunchParameterBuffer.
    """

    numbers: Sequence[int]
    memory: Sequence[int]
    written: Sequence[int]
    text: str
    safe: Callable[[], str]
    moves: bool
    label: str


class LinkedKernels:
    """The launches that replace steps of a program: the first step of a stretch has its kernel, the others have none.

    table: of dynamic parameters, if any. kernels: their number. steps: the number of steps that they compute. reasons:
    why other kernels are not linked.
    """

    def __init__(self, instance: ShapeInstance, built: Sequence[Any]) -> None:
        """Link, try in child processes, and prepare the launches. LinkError if nothing can be linked.

        instance: whose launches have the grids that are used. built: programs by source.
        """
        rt, program = self._rt, self._program = instance.rt, instance.program
        self.table = None if instance.dynamic is None else LaunchParameterBuffer(rt, instance.dynamic)
        places = find_buffer_ranges(instance)
        self._state = [s for s in program.slots if s.storage is Storage.RESERVED and s.id in places]
        self._bound = UNBOUND
        if sum(min(s.nbytes, places[s.id].whole.size) for s in self._state) > MAX_STATE_BYTES:
            raise LinkError(f"state of more than {MAX_STATE_BYTES} bytes is not saved for a trial")
        shared = MOST_SHARED if PTX_WGMMA in rt.info.quirks else SHARED
        self.shape = GridShape(rt.info.compute_units, THREADS, shared)
        self._blocks: list[ArgumentBlock] = []
        self._memory: list[Any] = []  # kept alive for its addresses
        self._own: dict[int, tuple[int, int]] = {}  # address and bytes of each slot's memory, before it is bound
        self.launches: dict[int, list[PreparedLaunch]] = {}
        self.reasons: dict[str, str] = {}  # by kernel
        self.steps = self.kernels = 0
        self._sync = rt.allocate(SYNC_BYTES)  # barrier counters of all kernels
        rt.fill(self._sync, 0, SYNC_BYTES)
        self._written: dict[int, BufferRange] = {}  # by slot
        self._programs: dict[str, Any] = {}  # by text
        self._streams = sum(s.nbytes for s in program.slots if s.storage is Storage.STATIC) > MOST_KEPT
        texts: dict[int, str] = {}
        found = self._stretches(program, instance.launches, built, places, texts)
        linked = [self._link(s, program, head_of(next(iter(texts.values()))) or "") for s in found]
        for stretch in self._tried(linked, program, instance.launches, places):
            self._prepare(stretch, places)
        if not self.kernels:
            reason = next(iter(self.reasons.items()), None)
            raise LinkError(
                "no two launches follow each other that can be linked" if reason is None else ": ".join(reason)
            )
        self._flag = rt.pinned(4).view(np.uint32)
        users = Counter(id(p.whole) for p in places.values())
        self._shared = {slot for slot, p in places.items() if p.first or users[id(p.whole)] > 1}

    def _stretches(
        self,
        program: Program,
        prepared: Mapping[int, PreparedLaunch],
        built: Sequence[Any],
        places: BufferRanges,
        texts: dict[int, str],
    ) -> list[list[tuple[int, LinkedStep]]]:
        """Neighbouring steps that can be linked, by number."""
        moved = {i for numbers in steps_outside(program) for i in numbers}
        found: list[list[tuple[int, LinkedStep]]] = [[]]
        used: set[int] = set()
        for i, step in enumerate(program.steps):
            if i in moved or (isinstance(step, LaunchStep) and 0 in step.grid):
                continue
            linked = self._linked_step(i, step, prepared.get(i), built, places, texts)
            if linked is None:
                found.append([])
                continue
            slots = {id(places[a.slot].whole) for a in step.args if isinstance(a, SlotArg)}  # type: ignore[union-attr]
            if len(found[-1]) == MOST_STEPS or len(used | slots) > MOST_PARAMS or not found[-1]:
                used = set()
                if found[-1]:
                    found.append([])
            used |= slots
            found[-1].append((i, linked))
        return [stretch for stretch in found if len(stretch) >= LEAST_STEPS]

    def _linked_step(
        self,
        number: int,
        step: Step,
        launch: PreparedLaunch | None,
        built: Sequence[Any],
        places: BufferRanges,
        texts: dict[int, str],
    ) -> LinkedStep | None:
        if not isinstance(step, LaunchStep) or launch is None:
            return None
        if step.source not in texts:
            texts[step.source] = ptx_of(built[step.source])
        reason = "the driver does not give its PTX"
        if head_of(texts[step.source]) is None:
            self.reasons.setdefault(step.kernel, reason)
            return None
        try:
            entry = parse_kernel(texts[step.source], step.entry)
            dynamic = {} if self.table is None else self.table.args
            args = tuple(dynamic.get((number, j)) or _argument(a, places) for j, a in enumerate(step.args))
            counts = -1 if self.table is None else self.table.counts.get(number, -1)
            sized = launch if counts < 0 else step  # a launch has the grid of the last run, a step the largest one
            if sized.group is None:
                raise PtxKernelError("the driver chooses its work-group")
            group = (*sized.group, 1, 1)[:3]
            groups = tuple(n // g for n, g in zip((*sized.grid, 1, 1)[:3], group, strict=True))
            found = LinkedStep(entry, args, groups, group, counts, step.walk)  # type: ignore[arg-type]
            reason = argument_mismatch(found) or refusal(found, self.shape)
            if not reason:
                return found
        except PtxKernelError as e:
            reason = str(e)
        self.reasons.setdefault(step.kernel, reason)
        return None

    def _link(self, stretch: Sequence[tuple[int, LinkedStep]], program: Program, head: str) -> Stretch:
        """Write the kernel of a stretch."""
        constants = {s.id for s in program.slots if s.storage is Storage.STATIC}
        memory: dict[int, int] = {}
        wrote: list[int] = []
        steps: list[LinkedStep] = []
        for i, step in stretch:
            given = program.steps[i]
            assert isinstance(given, LaunchStep)
            args: list[Number | DynamicNumber | Memory] = []
            for a, known in zip(given.args, step.args, strict=True):
                if isinstance(a, SlotArg) and isinstance(known, Memory):
                    memory.setdefault(known.whole, a.slot)
                    param = list(memory).index(known.whole)
                    known = replace(known, param=param, is_constant=a.slot in constants, is_own=len(args) in given.own)
                    if step.entry.params[len(args)].name in written(step.entry):
                        wrote.append(a.slot)
                args.append(known)
            steps.append(replace(step, args=tuple(args)))
        try:
            write = partial(link, steps, len(memory), self.shape, find_step_order(steps), head, self._streams)
            text = write(apart=False)
        except PtxKernelError as e:
            raise LinkError(str(e)) from e
        numbers = [i for i, _ in stretch]
        label = f"{len(stretch)} steps from {program.steps[numbers[0]].node}"
        return Stretch(numbers, list(memory.values()), wrote, text, write, any(s.is_dynamic for s in steps), label)

    def _tried(
        self,
        stretches: Sequence[Stretch],
        program: Program,
        prepared: Mapping[int, PreparedLaunch],
        places: BufferRanges,
    ) -> Sequence[Stretch]:
        """Run new kernels in child processes. Returns the stretches whose kernels ran; LinkError if one has none."""
        changing = {id(places[s.id].whole) for s in program.slots if s.id in places and s.storage is not Storage.STATIC}
        numbers = b"" if self.table is None else self.table.snapshot(prepared)

        def find_fault(stretch: Stretch) -> str:
            return self._rt.trials.fault(self._trial(stretch, changing, numbers, places))

        def find_faults(some: Iterable[Stretch]) -> dict[str, str]:
            fresh = {s.text: s for s in some}
            return dict(zip(fresh, parallel_map(find_fault, fresh.values()), strict=True))

        faults = find_faults(stretches)
        safe = {s.text: replace(s, text=s.safe()) for s in stretches if faults.get(s.text)}
        if why := next(filter(None, find_faults(safe.values()).values()), ""):
            raise LinkError(f"a linked kernel is not launched: {why}")
        return [safe.get(s.text, s) for s in stretches]

    def _trial(self, stretch: Stretch, changing: set[int], numbers: bytes, places: BufferRanges) -> Trial:
        """A launch of a stretch on buffers of the same sizes, with all constants in one buffer."""
        sync, table, constant = 0, 1, 2
        sizes = [SYNC_BYTES, max(len(numbers), 1), 1]
        memory: list[int] = []
        for whole in (places[slot].whole for slot in stretch.memory):
            if id(whole) in changing:
                memory.append(len(sizes))
                sizes.append(whole.size)
            else:
                memory.append(constant)
                sizes[constant] = max(sizes[constant], whole.size)
        return Trial(
            stretch.text.encode(),
            NAME,
            self.shape.groups * self.shape.threads,
            self.shape.threads,
            sizes,
            pointers_of(sync, table if stretch.moves else -1, memory),
            {table: numbers} if numbers else {},
        )

    def record_failure(self, why: str) -> None:
        """Record, for later processes too, that the kernels must not be launched."""
        for text in self._programs:
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
        places = self._own | {slot: (s.device_address or 0, s.nbytes) for slot, s in used.items()}
        ranges = sorted((*place, slot) for slot, place in places.items())
        for (first, nbytes, a), (following, _, b) in pairwise(ranges):
            if first + nbytes > following and (a in used or b in used):
                return False
        changed = {slot for slot in before.keys() | bound.keys() if bound.get(slot) is not before.get(slot)}
        for block in self._blocks:
            block.bind(changed, bound)
        self._bound = bound
        return True

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
        """Enqueue, after the launches of a run, the read of the flag that a group waited in vain."""
        self._rt.read(self._sync, self._flag, wait=False)

    def has_failed(self) -> bool:
        """Whether a group waited in vain, once the queue has finished. Resets the flag for the next run."""
        if not self._flag[0]:
            return False
        self._rt.fill(self._sync, 0, SYNC_BYTES)
        self._flag[0] = 0
        return True


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


def _argument(a: SlotArg | ScalarArg | LocalArg, places: BufferRanges) -> Number | Memory:
    """The argument in the linked program; parameters are numbered later."""
    if isinstance(a, LocalArg):
        raise PtxKernelError("it has local memory as argument, which is not supported")
    if isinstance(a, ScalarArg):
        return Number(a.value.tobytes())
    if (place := places.get(a.slot)) is None:
        raise PtxKernelError("it reads or writes images")
    return Memory(-1, id(place.whole), place.first, place.last)
