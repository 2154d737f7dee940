"""KernelArguments: the arguments and grids of an executable's launches, which are those of one shape at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cl.programs.background_throttle import yield_interpreter
from ...cl.queue.prepared_launch import PreparedLaunch
from ...ir.rng_seed import KEY_ARGUMENTS
from ...plan.program import LaunchStep, Program, ScalarArg, SlotArg
from ...plan.template.dynamic_parameters import DynamicScalar, Values
from .memory.io_transfer import UNBOUND, Bindings

if TYPE_CHECKING:
    from .shape_instance import ShapeInstance


class KernelArguments:
    """Sets what differs from the last shape, bindings and dynamic parameters.

    launches: by number of their step. instance, bound: whose arguments are set, and with which bindings. is_random:
    launches draw random numbers, with another key in each run, as in onnxruntime. The first run has the planned key.
    Later ones follow from it and the number of the run, so a seed repeats all of them.
    """

    def __init__(self) -> None:
        self.launches: dict[int, PreparedLaunch] = {}
        self.instance: ShapeInstance | None = None  # None if unknown arguments are set
        self.bound = UNBOUND
        self._numbers: dict[tuple[int, int], Any] = {}  # dynamic parameters that are set, by step and argument
        self._uses: dict[int, list[tuple[PreparedLaunch, int]]] = {}  # arguments by slot, once another is bound
        self._runs = 0
        self._keys: list[tuple[PreparedLaunch, int, int]] = []  # launch, number of the argument, planned key
        self.is_random = False

    def prepare(self, first: ShapeInstance, built: Sequence[Any]) -> None:
        """Make the launches, with the arguments of the first shape. built: programs by number of the source."""
        rt = first.rt
        paused = time.perf_counter()
        for i, step, args in first.all_launched(UNBOUND):
            paused = yield_interpreter(paused)
            launch = rt.prepare(built[step.source], step.entry, args, step.grid, step.group, step.node)
            self.launches[i] = launch
            if step.open_group:
                launch.fit_group(rt.device)
            if step.entry in KEY_ARGUMENTS:
                key = step.args[number := KEY_ARGUMENTS[step.entry]]
                assert isinstance(key, ScalarArg)
                self._keys.append((launch, number, int(key.value)))
        self.instance, self.is_random = first, bool(self._keys)

    def release(self) -> None:
        """Drop all references to memory."""
        self.instance, self.bound = None, UNBOUND
        self._numbers.clear()
        for launch in self.launches.values():
            launch.release_arguments()

    def set(self, instance: ShapeInstance) -> None:
        """Set the arguments of `instance` with its bindings."""
        bound = instance.io.bound
        if self.instance is not instance:
            self._change(instance, bound)
        elif self.bound is not bound:
            self._rebind(instance, bound)
        self.bound = bound

    def _change(self, instance: ShapeInstance, bound: Bindings) -> None:
        """Set the arguments of another shape."""
        before = self.instance
        if before is None or before.dynamic is not None:
            changed = instance.all_launched(bound)
        else:
            changed = instance.changed_since(before, self.bound, bound)
        self.instance = None  # until all are set
        self._numbers.clear()
        paused = time.perf_counter()
        for i, step, args in changed:
            paused = yield_interpreter(paused)
            self.launches[i].update(args, step.grid, step.group)
            if step.open_group:
                self.launches[i].fit_group(instance.rt.device)
        self.instance = instance

    def _rebind(self, instance: ShapeInstance, bound: Bindings) -> None:
        """Set the arguments of slots whose bindings have changed."""
        if not self._uses:
            for i, launch in self.launches.items():
                for index, a in enumerate(instance.program.steps[i].args):  # type: ignore[union-attr]
                    if isinstance(a, SlotArg):
                        self._uses.setdefault(a.slot, []).append((launch, index))
        before = self.bound
        for slot in before.keys() | bound.keys():
            now = bound.get(slot)
            if now is not before.get(slot):
                buffer = instance.placed.objects[slot] if now is None else now.buffer
                for launch, index in self._uses.get(slot, ()):
                    launch.set_arg(index, buffer)

    def set_scalars(self, scalars: Sequence[DynamicScalar], values: Values) -> None:
        """Set dynamic parameters of the current shape."""
        numbers = self._numbers
        for s in scalars:
            value = values[s.value]
            if numbers.get(place := (s.step, s.arg)) != value:  # a call of the driver each
                self.launches[s.step].set_arg(s.arg, np.dtype(s.dtype).type(value))
                numbers[place] = value

    def set_keys(self) -> None:
        """Set the keys of the random launches of the run that begins."""
        for launch, number, planned in self._keys:
            launch.set_arg(number, np.uint32((planned + self._runs) & 0xFFFFFFFF))
        self._runs += 1


def draws(program: Program) -> bool:
    """Whether `program` has random launches."""
    return any(isinstance(s, LaunchStep) and s.entry in KEY_ARGUMENTS for s in program.steps)
