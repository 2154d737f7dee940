"""ShapeInstance: the part of an Executable that belongs to one set of sizes, kept for sizes that come again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from ...cl.queue.prepared_launch import KernelArg, LocalBytes
from ...plan.program import LaunchStep, LocalArg, Program, ScalarArg, SlotArg, Step, StepArg
from .launch_batches import LoadedProgram
from .memory.slot_memory import Placed
from .strategies.host_fast_path import HostFastPath
from .strategies.megakernel_builder import MegakernelBuilder, least_seconds
from .strategies.megakernel_strategy import MegakernelStrategy
from .strategies.persistent_kernel_strategy import PersistentKernelSelector
from .strategies.queue_strategy import Queue
from .strategies.time_slicing import TimeSlicedQueue

Launched: TypeAlias = tuple[int, LaunchStep, list[KernelArg]]
"""(number, step, arguments) of a launch."""


class ShapeInstance:
    """A Program with its buffers, and the strategies that were made for it so far.

    builder: of its megakernel. plain: launches one by one. megakernel: launches joined. host_fast_path: the megakernel
    between two copies of arrays. persistent: selects linked kernels, if they are supported. time_sliced: for runs
    beside those of other threads. megakernel_tables: of this shape.
    """

    def __init__(self, program: Program, placed: Placed, prepared: LoadedProgram, builder: MegakernelBuilder) -> None:
        self.program = program
        self.placed = placed
        self.prepared = prepared
        self.builder = builder
        self.plain: Queue | None = None
        self.megakernel: MegakernelStrategy | None = None
        self.host_fast_path: HostFastPath | None = None
        self.persistent: PersistentKernelSelector | None = None
        self.time_sliced: TimeSlicedQueue | None = None
        self.megakernel_tables: Any = None
        self.host_template: list[Any] = [None] * program.host_slots
        for number, array in program.host_consts.items():
            self.host_template[number] = array
        self.inputs = [p.host for p in program.inputs]
        self.outputs = [p.host for p in program.outputs]

    def filled(self, feeds: Sequence[Any]) -> list[Any]:
        """Values by slot on the host: inputs and constants."""
        host_values = self.host_template.copy()
        for number, value in zip(self.inputs, feeds, strict=True):
            host_values[number] = value
        return host_values

    def move(self, moved: Mapping[int, Any]) -> None:
        """Drop strategies that contain addresses of the slots in `moved`, which have new buffers, by slot."""
        self.placed.move(moved)
        self.__dict__.pop("launches", None)
        self.megakernel = self.host_fast_path = self.time_sliced = self.megakernel_tables = None
        for recording in self.prepared.io.recordings:
            recording.invalidate()

    @cached_property
    def alone_s(self) -> float:
        """Least seconds that the launches take on one of the device's cores."""
        rt, steps = self.prepared.rt, [s for s in self.program.steps if isinstance(s, LaunchStep)]
        return least_seconds(steps, rt) * rt.info.compute_units

    @cached_property
    def launches(self) -> list[Launched]:
        """(number, step, arguments) of every launch, with the program's own buffers."""
        steps = ((i, s) for i, s in enumerate(self.program.steps) if isinstance(s, LaunchStep))
        return [self._with_args(i, s) for i, s in steps]

    def changed_since(self, before: ShapeInstance, slots: Mapping[int, frozenset[int]]) -> list[Launched]:
        """The launches that differ from those of `before`, another shape in the same memory layout.

        slots: used by each launch.
        """
        old, new = before.placed.objects, self.placed.objects
        moved = {slot for slot, memory in new.items() if memory is not old[slot]}
        steps, its = self.program.steps, before.program.steps
        changed = [i for i, used in slots.items() if steps[i] is not its[i] or not moved.isdisjoint(used)]
        return [self._with_args(i, steps[i]) for i in changed]

    def _with_args(self, number: int, step: Step) -> Launched:
        assert isinstance(step, LaunchStep)
        objects = self.placed.objects
        return number, step, [_value(a, objects) for a in step.args]


def _value(a: StepArg, objects: dict[int, Any]) -> Any:
    if isinstance(a, SlotArg):
        return objects[a.slot]
    if isinstance(a, LocalArg):
        return LocalBytes(a.nbytes)
    assert isinstance(a, ScalarArg)
    return a.value
