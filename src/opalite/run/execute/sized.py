"""Sized: what of an Executable belongs to one set of sizes, kept for sizes that come again."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...cl.launch import KernelArg, LocalBytes
from ...plan.program import LaunchStep, LocalArg, Program, ScalarArg, SlotArg, StepArg
from .loop import Loop
from .loop_builder import LoopBuilder
from .phases import Prepared
from .queue import Queue
from .repeat import Repeat
from .slot_memory import Placed


class Sized:
    """A Program with its place in memory, and the strategies that were made for it so far.

    builder: of the loop that serves it. loop: what is built for this size; repeat: the same on arrays.
    """

    def __init__(self, program: Program, placed: Placed, prepared: Prepared, builder: LoopBuilder) -> None:
        self.program = program
        self.placed = placed
        self.prepared = prepared
        self.builder = builder
        self.plain: Queue | None = None
        self.loop: Loop | None = None
        self.repeat: Repeat | None = None
        self.rows: Any = None  # of the loop
        self.blank: list[Any] = [None] * program.host_slots
        for number, array in program.host_consts.items():
            self.blank[number] = array
        self.inputs = [p.host for p in program.inputs]
        self.outputs = [p.host for p in program.outputs]

    @cached_property
    def launches(self) -> list[tuple[int, LaunchStep, list[KernelArg]]]:
        """(number, step, arguments) of every launch, in the program's own memory."""
        objects = self.placed.objects
        steps = ((i, s) for i, s in enumerate(self.program.steps) if isinstance(s, LaunchStep))
        return [(i, s, [_value(a, objects) for a in s.args]) for i, s in steps]


def _value(a: StepArg, objects: dict[int, Any]) -> Any:
    if isinstance(a, SlotArg):
        return objects[a.slot]
    if isinstance(a, LocalArg):
        return LocalBytes(a.nbytes)
    assert isinstance(a, ScalarArg)
    return a.value
