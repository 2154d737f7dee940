"""ShapeInstance: the part of an Executable that belongs to one set of sizes, kept for sizes that come again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from ...cl.queue.prepared_launch import KernelArg, LocalBytes, PreparedLaunch
from ...cl.runtime import Runtime
from ...plan.program import (
    HostStep,
    LaunchStep,
    LocalArg,
    Program,
    ReferenceStep,
    ScalarArg,
    SlotArg,
    StepArg,
    TexelsArg,
)
from ...plan.template.dynamic_parameters import DynamicParameters
from .kernel_arguments import KernelArguments
from .memory.io_transfer import Bindings, IoTransfer
from .memory.slot_memory import Placed
from .step_schedule import StepSchedule

if TYPE_CHECKING:
    from .strategies.strategy_selector import StrategySelector

Launched: TypeAlias = tuple[int, LaunchStep, list[KernelArg]]
"""(number, step, arguments) of a launch."""


class ShapeInstance:
    """A Program with its memory and launches on a device, and the selector of its strategies.

    schedule: of the program. io: its transfers and bindings. launches: by number of their step; other shapes
    share them. arguments: sets their arguments. run_on_host: runs one host operator on the values by slot. dynamic:
    parameters that change with each run, if any. selector: set by the executable. host_values: by slot on the host,
    without inputs.
    """

    selector: StrategySelector

    def __init__(
        self,
        rt: Runtime,
        program: Program,
        placed: Placed,
        schedule: StepSchedule,
        arguments: KernelArguments,
        run_on_host: Callable[[HostStep | ReferenceStep, list[Any]], None],
        dynamic: DynamicParameters | None = None,
    ) -> None:
        self.rt, self.program, self.placed, self.schedule = rt, program, placed, schedule
        self.arguments, self.run_on_host, self.dynamic = arguments, run_on_host, dynamic
        self.io = IoTransfer(rt, program, placed.staging_buffers, schedule)
        self.launches: Mapping[int, PreparedLaunch] = arguments.launches
        self.host_values: list[Any] = [None] * program.host_slots
        for number, array in program.host_consts.items():
            self.host_values[number] = array
        self.inputs = [p.host for p in program.inputs]
        self.outputs = [p.host for p in program.outputs]

    def drop_strategies(self) -> None:
        """Drop the strategies, which reference the instance: its memory is then freed with it."""
        del self.selector

    def filled(self, feeds: Sequence[Any]) -> list[Any]:
        """Values by slot on the host: inputs and constants."""
        host_values = self.host_values.copy()
        for number, value in zip(self.inputs, feeds, strict=True):
            host_values[number] = value
        return host_values

    @cached_property
    def launch_steps(self) -> list[LaunchStep]:
        """The launches whose grid is not empty."""
        return [s for s in self.program.steps if isinstance(s, LaunchStep) and 0 not in s.grid]

    @cached_property
    def _steps(self) -> dict[int, LaunchStep]:
        steps: Sequence[Any] = self.program.steps
        return {id(launch): steps[i] for i, launch in self.launches.items()}

    def step_of(self, launch: PreparedLaunch) -> LaunchStep:
        """The step of a launch."""
        return self._steps[id(launch)]

    @cached_property
    def alone_s(self) -> float:
        """Least seconds that the launches take on one of the device's cores."""
        return least_seconds(self.launch_steps, self.rt) * self.rt.info.compute_units

    def all_launched(self, bound: Bindings) -> list[Launched]:
        """(number, step, arguments) of every launch."""
        return self._with_args(self.schedule.slots, bound)

    def changed_since(self, before: ShapeInstance, old: Bindings, bound: Bindings) -> list[Launched]:
        """Launches with bindings `bound` that differ from those of shape instance `before` with bindings `old`."""
        was, now = before.placed.objects, self.placed.objects
        moved = {slot for slot, memory in now.items() if memory is not was[slot]}
        moved.update(slot for slot in old.keys() | bound.keys() if old.get(slot) is not bound.get(slot))
        steps, its = self.program.steps, before.program.steps
        slots = self.schedule.slots.items()
        return self._with_args([i for i, used in slots if steps[i] is not its[i] or not moved.isdisjoint(used)], bound)

    def _with_args(self, numbers: Iterable[int], bound: Bindings) -> list[Launched]:
        objects = self.placed.objects
        if bound:
            objects = objects | {slot: staging.buffer for slot, staging in bound.items()}
        steps: Sequence[Any] = self.program.steps
        return [(i, steps[i], [self._value(a, objects) for a in steps[i].args]) for i in numbers]

    def _value(self, a: StepArg, objects: dict[int, Any]) -> Any:
        return self.placed.texels(a.slot) if isinstance(a, TexelsArg) else _value(a, objects)


def _value(a: StepArg, objects: dict[int, Any]) -> Any:
    if isinstance(a, SlotArg):
        return objects[a.slot]
    if isinstance(a, LocalArg):
        return LocalBytes(a.nbytes)
    assert isinstance(a, ScalarArg)
    return a.value


def least_seconds(steps: Iterable[LaunchStep], rt: Runtime) -> float:
    """Least seconds of `steps`, by their operations and the bytes that they access."""
    flops_s, bytes_s = 1 / rt.info.peak_flops, 1 / rt.info.bandwidth
    return sum([max(s.flops * flops_s, s.nbytes * bytes_s) for s in steps])
