"""A test double of LinkedKernels, for any device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.runtime import Runtime
from opalite.plan.program import Storage
from opalite.run.execute import executable
from opalite.run.execute.strategies import linked_ptx_kernels, persistent_kernel_strategy
from opalite.run.execute.strategies.launch_parameter_buffer import LaunchParameterBuffer
from opalite.run.execute.strategies.linked_ptx_kernels import BufferRange, LinkError


class Double:
    """Single launches in place of `LinkedKernels`, without the last one if it `forgets`.

    fails: for later runs, whether a group waits in vain; each is read once.
    """

    forgets = False
    made: list[Double]
    refuses = ""
    is_verified = False
    condemned = ""

    def __init__(
        self,
        rt: Runtime,
        program: Any,
        prepared: Mapping[int, PreparedLaunch],
        built: Any,
        places: Any,
        table: LaunchParameterBuffer | None = None,
        given: Any = None,
    ) -> None:
        if self.refuses:
            raise LinkError(self.refuses)
        self.program, self.prepared, self.table = program, prepared, table
        self.launches = {i: [launch] for i, launch in prepared.items()}
        if self.forgets:
            self.launches[max(self.launches)] = []
        self.kernels, self.steps = 1, len(prepared)
        self.fails: list[bool] = []
        self.asked = 0
        self.made.append(self)

        self._rt = rt
        buffers = [s for s in program.slots if s.image is None]
        reserved = [s for s in buffers if s.storage is Storage.RESERVED]
        kept = [places[s.id] for s in reserved]
        self._lasting = [BufferRange(p.whole, p.first, min(p.last, p.whole.size)) for p in kept]
        self._memory = [places[s.id] for s in buffers if s.storage is not Storage.STATIC and s not in reserved]

    def read_table(self) -> None:
        """Read dynamic parameters from the buffer, as linked kernels do."""
        table = self.table
        if table is None:
            return
        cells = np.empty(table.buffer.size, np.uint8)
        self._rt.read(table.buffer, cells)
        for (step, arg), number in table.args.items():
            dtype = self.program.steps[step].args[arg].value.dtype
            assert number.nbytes == dtype.itemsize
            self.prepared[step].set_arg(arg, cells[number.at : number.at + number.nbytes].view(dtype)[0])
        for step, at in table.counts.items():
            launch = self.prepared[step]
            counts = cells[at : at + 12].view(np.uint32).tolist()
            launch.group = self.program.steps[step].group
            launch.grid = tuple(n * g for n, g in zip(counts, launch.group, strict=False))  # type: ignore[arg-type]

    def record_failure(self, why: str) -> None:
        self.condemned = why

    def mark_verified(self) -> None:
        self.is_right = True

    def read_state(self) -> list[Any]:
        found = [np.empty(p.last - p.first, np.uint8) for p in self._lasting]
        for p, array in zip(self._lasting, found, strict=True):
            self._rt.read(p.whole, array, p.first)
        return found

    def restore_state(self, state: list[Any]) -> None:
        for p, array in zip(self._lasting, state, strict=True):
            self._rt.write(p.whole, array, p.first)

    def poison_outputs(self) -> None:
        for place in self._memory:
            self._rt.fill(place.whole, 0x5A, place.last - place.first, place.first)
        self._rt.finish()

    def enqueue_flag_read(self) -> None:
        self.asked += 1

    def has_failed(self) -> bool:
        return bool(self.fails) and self.fails.pop(0)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> type[Double]:
    """Linking is supported, and linked kernels count as faster."""
    monkeypatch.setenv("OPALITE_MEGAKERNEL", "0")
    monkeypatch.setenv("OPALITE_REPLAY", "0")
    monkeypatch.setattr(executable, "may_link", lambda rt: True)
    monkeypatch.setattr(persistent_kernel_strategy, "WORTH_RUNS", 2)
    monkeypatch.setattr(persistent_kernel_strategy, "GAIN", 1e9)
    monkeypatch.setattr(persistent_kernel_strategy, "LONG_S", 1e9)
    own = type("OfThisTest", (Double,), {"made": []})
    monkeypatch.setattr(linked_ptx_kernels, "LinkedKernels", own)
    enqueue = persistent_kernel_strategy.PersistentKernelStrategy._enqueue

    def read_and_enqueue(self: Any, recording: Any) -> bool:
        self.kernels.read_table()
        return enqueue(self, self.prepared.rt.record(recording.launches))

    monkeypatch.setattr(persistent_kernel_strategy.PersistentKernelStrategy, "_enqueue", read_and_enqueue)
    return own
