"""A test double of LinkedKernels, for any device."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from opalite.plan.program import Storage, UploadStep
from opalite.run.execute import executable
from opalite.run.execute.shape_instance import ShapeInstance
from opalite.run.execute.strategies import (
    link_stretches,
    linked_kernel_choice,
    linked_ptx_kernels,
    linked_stretch,
    persistent_kernel_strategy,
)
from opalite.run.execute.strategies.link_stretches import LinkError
from opalite.run.execute.strategies.linked_stretch import BufferRange, Stretch


class DoubleLinker:
    """A StretchLinker of a kernel without steps, whose trial passes."""

    refuses = ""
    text = ""

    def __init__(self, instance: ShapeInstance, table: Any) -> None:
        self._rt = instance.rt

    def link(self, built: Any) -> list[Stretch]:
        fault = self._rt.trials.known_fault(self.text.encode())
        if self.refuses or fault:
            raise LinkError(self.refuses or f"a linked kernel is not launched: {fault}")
        self._rt.trials.record_failure(self.text.encode(), "")
        return [Stretch([], [], [], self.text, False, "")]


class Double:
    """Single launches in place of `LinkedKernels`, without the last one if it `forgets`.

    leaves: whether some launches with dynamic parameters are not linked.
    fails: for later runs, whether a group waits in vain; each is read once.
    """

    forgets = False
    leaves = False
    made: list[Double]
    Linker: type[DoubleLinker]
    condemned = ""

    def __init__(self, instance: ShapeInstance, stretches: Any, table: Any, programs: Any) -> None:
        program, prepared = instance.program, instance.launches
        self.program, self.prepared, self.io, self._instance = program, prepared, instance.io, instance
        self.table = table
        self.launches = {i: [launch] for i, launch in prepared.items()}
        if self.forgets:
            self.launches[max(self.launches)] = []
        if self.leaves and instance.dynamic is not None:
            for s in instance.dynamic.scalars[::2]:
                self.launches.pop(s.step, None)
        self.kernels, self.steps = 1, len(prepared)
        self.fails: list[bool] = []
        self.asked = 0
        self.bindings: list[Any] = []
        self.made.append(self)

        self._rt = instance.rt
        buffers = [s for s in program.slots if s.image is None]
        self._reserved = [s for s in buffers if s.storage is Storage.RESERVED]
        places = linked_stretch.find_buffer_ranges(instance)
        others = [s for s in buffers if s.storage is not Storage.STATIC and s not in self._reserved]
        self._memory = {s.id: places[s.id] for s in others}

    def bind(self, bound: Any) -> bool:
        if not self.bindings or self.bindings[-1] is not bound:
            self.bindings.append(bound)
        self._instance.arguments.set(self._instance)
        return True

    @property
    def _lasting(self) -> list[BufferRange]:
        held = [(s, self.io.bound[s.id].buffer) for s in self._reserved]
        return [BufferRange(buffer, 0, min(s.nbytes, buffer.size)) for s, buffer in held]

    def read_table(self) -> None:
        """Read dynamic parameters from the buffer, as linked kernels do."""
        table = self.table
        if table is None:
            return
        cells = np.empty(table.buffer.size, np.uint8)
        self._rt.read(table.buffer, cells)
        for (step, arg), number in table.args.items():
            if step not in self.launches:
                continue
            dtype = self.program.steps[step].args[arg].value.dtype
            assert number.nbytes == dtype.itemsize
            self.prepared[step].set_arg(arg, cells[number.at : number.at + number.nbytes].view(dtype)[0])
        for step, at in table.counts.items():
            if step not in self.launches:
                continue
            launch = self.prepared[step]
            counts = cells[at : at + 12].view(np.uint32).tolist()
            launch.group = self.program.steps[step].group
            launch.grid = tuple(n * g for n, g in zip(counts, launch.group, strict=False))  # type: ignore[arg-type]

    def record_failure(self, why: str) -> None:
        self.condemned = why
        self._rt.trials.record_failure(self.Linker.text.encode(), why)

    def read_state(self) -> list[Any]:
        found = [np.empty(p.last - p.first, np.uint8) for p in self._lasting]
        for p, array in zip(self._lasting, found, strict=True):
            self._rt.read(p.whole, array, p.first)
        return found

    def restore_state(self, state: list[Any]) -> None:
        for p, array in zip(self._lasting, state, strict=True):
            self._rt.write(p.whole, array, p.first)

    def poison_outputs(self) -> None:
        taken = {s.slot for s in self.program.steps if isinstance(s, UploadStep)}
        for slot, place in self._memory.items():
            if slot in self.io.bound and slot in taken:
                continue  # the caller's input
            if slot in self.io.bound:
                self._rt.fill(self.io.bound[slot].buffer, 0x5A, self.io.bound[slot].nbytes)
            else:
                self._rt.fill(place.whole, 0x5A, place.last - place.first, place.first)
        self._rt.finish()

    def enqueue_flag_read(self) -> None:
        self.asked += 1

    def has_failed(self) -> bool:
        return bool(self.fails) and self.fails.pop(0)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> type[Double]:
    """Linking is supported, and linked kernels count as faster."""
    monkeypatch.setenv("OPALITE_STRATEGY", "persistent")
    monkeypatch.setattr(executable, "may_link", lambda rt: True)
    monkeypatch.setattr(linked_kernel_choice, "WORTH_RUNS", 2)
    monkeypatch.setattr(linked_kernel_choice, "GAIN", 1e9)
    monkeypatch.setattr(linked_kernel_choice, "LONG_S", 1e9)
    own = type(
        "OfThisTest",
        (Double,),
        {"made": [], "Linker": type("LinkerOfThisTest", (DoubleLinker,), {"text": str(uuid4())})},
    )
    monkeypatch.setattr(linked_ptx_kernels, "LinkedKernels", own)
    monkeypatch.setattr(link_stretches, "StretchLinker", own.Linker)
    enqueue = persistent_kernel_strategy.PersistentKernelStrategy._enqueue

    def read_and_enqueue(self: Any, recording: Any) -> bool:
        self.kernels.read_table()
        return enqueue(self, self.instance.rt.record(recording.launches))

    monkeypatch.setattr(persistent_kernel_strategy.PersistentKernelStrategy, "_enqueue", read_and_enqueue)
    return own
