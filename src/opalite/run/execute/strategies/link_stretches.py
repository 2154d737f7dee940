"""StretchLinker: neighbouring launches of a program linked into the text of persistent kernels, and tried.

For devices whose programs are PTX (ptx/persistent_kernel.py). There are as many groups as multiprocessors, so that all
of them run at the same time, unless another process uses a part of the device. Child processes run new kernels first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ....cl.programs.build_parallelism import parallel_map
from ....cl.programs.kernel_trials import Trial
from ....cl.programs.ptx_binary import ptx_of
from ....errors import OpaliteError
from ....plan.program import LaunchStep, LocalArg, ScalarArg, SlotArg, Step, Storage
from ....ptx.find_written_params import written
from ....ptx.linked_launch import NAME, SYNC_BYTES, pointers_of
from ....ptx.parse_kernel import PtxKernelError, parse_kernel
from ....ptx.persistent_kernel import head_of, link, refusal
from ....ptx.step_dependencies import (
    DynamicNumber,
    LinkedStep,
    Memory,
    Number,
    argument_mismatch,
    find_step_order,
)
from ..shape_instance import ShapeInstance
from ..step_schedule import steps_outside
from .launch_parameter_buffer import LaunchParameterBuffer
from .linked_stretch import BufferRanges, Stretch, find_buffer_ranges, grid_shape

MOST_STEPS, MOST_PARAMS = 100, 400
"""Limits of one linked kernel: steps for its compile time, parameters for its launch."""
LEAST_STEPS = 2
MOST_KEPT = 24 << 20
"""Bytes of constants up to which they stay in the L2 cache from run to run."""
MAX_STATE_BYTES = 1 << 30
"""Bytes of state that a trial saves and restores."""


class LinkError(OpaliteError):
    """Launches cannot be linked; the message says why."""


Unsafe: TypeAlias = "tuple[Stretch, Callable[[], str]]"
"""A stretch before its trial, and a function that returns a slower text which is more robust."""


class StretchLinker:
    """Links the launches of one program. reasons: why kernels are not linked, by kernel."""

    def __init__(self, instance: ShapeInstance, table: LaunchParameterBuffer | None) -> None:
        """table: of dynamic parameters, if any."""
        self._rt, self._program, self.table = instance.rt, instance.program, table
        self._launches, self._places = instance.launches, find_buffer_ranges(instance)
        self.shape = grid_shape(self._rt)
        self.reasons: dict[str, str] = {}
        self._streams = sum(s.nbytes for s in self._program.slots if s.storage is Storage.STATIC) > MOST_KEPT

    def link(self, built: Sequence[Any]) -> list[Stretch]:
        """The stretches, whose kernels have run in child processes. LinkError if there are none.

        Launches have the grids that are used. built: programs by source.
        """
        state = [s for s in self._program.slots if s.storage is Storage.RESERVED and s.id in self._places]
        if sum(min(s.nbytes, self._places[s.id].whole.size) for s in state) > MAX_STATE_BYTES:
            raise LinkError(f"state of more than {MAX_STATE_BYTES} bytes is not saved for a trial")
        texts: dict[int, str] = {}
        found = self._stretches(built, texts)
        linked = [self._link(s, head_of(next(iter(texts.values()))) or "") for s in found]
        if not linked:
            reason = next(iter(self.reasons.items()), None)
            raise LinkError(
                "no two launches follow each other that can be linked" if reason is None else ": ".join(reason)
            )
        return self._tried(linked)

    def _stretches(
        self,
        built: Sequence[Any],
        texts: dict[int, str],
    ) -> list[list[tuple[int, LinkedStep]]]:
        """Neighbouring steps that can be linked, by number."""
        moved = {i for numbers in steps_outside(self._program) for i in numbers}
        found: list[list[tuple[int, LinkedStep]]] = [[]]
        used: set[int] = set()
        for i, step in enumerate(self._program.steps):
            if i in moved or (isinstance(step, LaunchStep) and 0 in step.grid):
                continue
            linked = self._linked_step(i, step, built, texts)
            if linked is None:
                found.append([])
                continue
            slots = {id(self._places[a.slot].whole) for a in step.args if isinstance(a, SlotArg)}  # type: ignore[union-attr]
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
        built: Sequence[Any],
        texts: dict[int, str],
    ) -> LinkedStep | None:
        launch = self._launches.get(number)
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
            args = tuple(dynamic.get((number, j)) or _argument(a, self._places) for j, a in enumerate(step.args))
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

    def _link(self, stretch: Sequence[tuple[int, LinkedStep]], head: str) -> Unsafe:
        """Write the kernel of a stretch."""
        constants = {s.id for s in self._program.slots if s.storage is Storage.STATIC}
        memory: dict[int, int] = {}
        wrote: list[int] = []
        steps: list[LinkedStep] = []
        for i, step in stretch:
            given = self._program.steps[i]
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
        label = f"{len(stretch)} steps from {self._program.steps[numbers[0]].node}"
        moves = any(s.is_dynamic for s in steps)
        return Stretch(numbers, list(memory.values()), wrote, text, moves, label), write

    def _tried(self, stretches: Sequence[Unsafe]) -> list[Stretch]:
        """Run new kernels in child processes. Returns the stretches whose kernels ran; LinkError if one has none."""
        variable = (s.id for s in self._program.slots if s.id in self._places and s.storage is not Storage.STATIC)
        changing = {id(self._places[slot].whole) for slot in variable}
        numbers = b"" if self.table is None else self.table.snapshot(self._launches)

        def find_fault(stretch: Stretch) -> str:
            return self._rt.trials.fault(self._trial(stretch, changing, numbers))

        def find_faults(some: Iterable[Stretch]) -> dict[str, str]:
            fresh = {s.text: s for s in some}
            return dict(zip(fresh, parallel_map(find_fault, fresh.values()), strict=True))

        faults = find_faults(s for s, _ in stretches)
        safe = {s.text: replace(s, text=write()) for s, write in stretches if faults.get(s.text)}
        if why := next(filter(None, find_faults(safe.values()).values()), ""):
            raise LinkError(f"a linked kernel is not launched: {why}")
        return [safe.get(s.text, s) for s, _ in stretches]

    def _trial(self, stretch: Stretch, changing: set[int], numbers: bytes) -> Trial:
        """A launch of a stretch on buffers of the same sizes, with all constants in one buffer."""
        sync, table, constant = 0, 1, 2
        sizes = [SYNC_BYTES, max(len(numbers), 1), 1]
        memory: list[int] = []
        for whole in (self._places[slot].whole for slot in stretch.memory):
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


def _argument(a: SlotArg | ScalarArg | LocalArg, places: BufferRanges) -> Number | Memory:
    """The argument in the linked program; parameters are numbered later."""
    if isinstance(a, LocalArg):
        raise PtxKernelError("it has local memory as argument, which is not supported")
    if isinstance(a, ScalarArg):
        return Number(a.value.tobytes())
    if (place := places.get(a.slot)) is None:
        raise PtxKernelError("it reads or writes images")
    return Memory(-1, id(place.whole), place.first, place.last)
