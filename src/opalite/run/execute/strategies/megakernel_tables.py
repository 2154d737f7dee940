"""MegakernelTables: the step tables that a megakernel reads, for one shape after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ....plan.megakernel_source import LINE, SHAPE, group_counts, packed_scalar
from ....plan.program import DownloadStep, LaunchStep, Program, ScalarArg, Slot, SlotArg, Storage
from ....pocl.megakernel.device_loop import BufferAddresses
from ....pocl.megakernel.host_thread_loop import StepArrays

Locate: TypeAlias = Callable[[Slot], tuple[Any, int]]
"""Returns the memory object that contains a slot, and the byte at which the slot begins."""


class MegakernelTables:
    """The table rows of some steps of a program, for all of its shapes."""

    def __init__(self, program: Program, numbers: Sequence[int], functions: Mapping[int, int], parts: int) -> None:
        """numbers: of the steps, in order. functions: by number of the step. parts: into which each step is divided."""
        self._numbers = numbers
        self._order = {step: n for n, step in enumerate(numbers)}
        self._functions = functions
        self._counter_bytes = 4 * LINE * (1 + parts) * len(numbers)
        self._starts: list[int] = []
        self._scalars: list[list[tuple[int, int]]] = []  # of each step: (argument, position in the table)
        at: list[int] = []
        places: list[int] = []
        order: dict[int, int] = {}  # position of each slot that steps use
        start = 0
        for i in numbers:
            step = program.steps[i]
            assert isinstance(step, LaunchStep)
            self._starts.append(start)
            self._scalars.append([(j, start + j) for j, a in enumerate(step.args) if isinstance(a, ScalarArg)])
            slots = [(j, a.slot) for j, a in enumerate(step.args) if isinstance(a, SlotArg)]
            at += [start + j for j, _ in slots]
            places += [order.setdefault(slot, len(order)) for _, slot in slots]
            start += len(step.args)
        self._slots = list(order)
        self._order_of_slots = order
        self._at, self._places = np.array(at, np.int64), np.array(places, np.int64)
        self._downloaded = {s.slot for s in program.steps if isinstance(s, DownloadStep)}
        self._tables: set[int] = set()  # constants that depend on sizes
        self._last: list[LaunchStep | None] = [None] * len(numbers)
        self._args = np.zeros(start, np.uint64)
        self._shapes = np.zeros((len(numbers), SHAPE), np.uint32)
        self._bases = np.zeros(len(order), np.uint64)

    def at(self, program: Program, locate: Locate, addresses: BufferAddresses) -> StepArrays:
        """The tables of `program`. locate: finds the memory of its slots."""
        args, shapes = self._args.copy(), self._shapes.copy()
        steps = [program.steps[i] for i in self._numbers]
        self._set_numbers(steps, args, shapes)
        args[self._at] = self._find(program, locate, addresses)[self._places]
        self._last, self._args, self._shapes = steps, args, shapes  # type: ignore[assignment]
        return StepArrays(args, shapes, self._counter_bytes)

    def argument(self, step: int, argument: int) -> int | None:
        """The position of an argument in the table; None if the step is not in it."""
        return self._starts[self._order[step]] + argument if step in self._order else None

    def arguments_of(self, slot: int) -> Any:
        """The positions of the arguments that are a slot's address."""
        return self._at[self._places == self._order_of_slots.get(slot, -1)]

    def row(self, step: int) -> int | None:
        """The row of a step in the table of shapes; None if the step is not in it."""
        return self._order.get(step)

    def shape(self, step: int, grid: Sequence[int], group: Sequence[int] | None) -> tuple[int, ...]:
        """A step's row in the table of shapes for this grid and work-group."""
        (gx, gy, gz), items = group_counts(grid, group)
        return (self._functions[step], self._starts[self._order[step]], gx * gy * gz, gx, gy, *items)

    def _set_numbers(self, steps: Sequence[Any], args: Any, shapes: Any) -> None:
        """Set everything except addresses."""
        at: list[int] = []
        values: list[int] = []
        changed: list[int] = []
        rows: list[tuple[int, ...]] = []
        packed: dict[int, int] = {}  # by identity of the argument; steps share arguments
        for n, (step, old) in enumerate(zip(steps, self._last, strict=True)):
            if step is old:
                continue
            mine = step.args
            for j, position in self._scalars[n]:
                a = mine[j]
                if old is None or a is not old.args[j]:
                    value = packed.get(id(a))
                    if value is None:
                        value = packed[id(a)] = packed_scalar(a.value)
                    at.append(position)
                    values.append(value)
            if old is None or step.grid != old.grid or step.group != old.group:
                changed.append(n)
                rows.append(self.shape(self._numbers[n], step.grid, step.group))
        if at:
            args[at] = np.array(values, np.uint64)
        if changed:
            shapes[changed] = rows

    def _find(self, program: Program, locate: Locate, addresses: BufferAddresses) -> Any:
        """The address of each slot."""
        self._tables.update(program.weights)
        slots = program.slots
        moving = [k for k, s in enumerate(self._slots) if not self._bases[k] or not self._stays(slots[s])]
        places = [locate(slots[self._slots[k]]) for k in moving]
        bases = addresses.of([memory for memory, _ in places])
        if moving:
            found = [base + start for base, (_, start) in zip(bases, places, strict=True)]
            self._bases[moving] = np.array(found, np.uint64)
        return self._bases

    def _stays(self, slot: Slot) -> bool:
        """Whether a slot has the same memory for every shape."""
        return slot.storage is Storage.STATIC and slot.id not in self._tables and slot.id not in self._downloaded
