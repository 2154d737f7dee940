"""Addresses and dynamic parameters of linked kernels, which are in one argument and in device memory."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from ....cl.memory.inline_upload import InlineUpload
from ....cl.queue.prepared_launch import PreparedLaunch
from ....cl.runtime import Runtime
from ....plan.program import LaunchStep
from ....plan.template.dynamic_parameters import DynamicParameters, Values
from ..memory.io_transfer import Bindings

_CELL = 8  # bytes of an argument
_COUNTS = 12  # bytes of numbers of work-groups along x, y and z
MAX_IN_FLIGHT = 32
"""Runs that may be on the queue at the same time."""


class ArgumentBlock:
    """The addresses that a linked kernel takes as one argument. slots: of its memory, in order."""

    launch: PreparedLaunch

    def __init__(self, pointers: Sequence[int], slots: Sequence[int]) -> None:
        self.slots = slots
        self._own = np.array(pointers, np.uint64)
        self._pointers = self._own.copy()

    @property
    def argument(self) -> Any:
        """The addresses, as a scalar argument."""
        return np.frombuffer(self._pointers.copy(), np.void(b"\0" * self._pointers.nbytes).dtype)[0]

    def bind(self, changed: Container[int], bound: Bindings) -> None:
        """Replace the addresses of the slots in `changed`."""
        first = len(self._own) - len(self.slots)
        found = [(i, slot) for i, slot in enumerate(self.slots, first) if slot in changed]
        for i, slot in found:
            address = bound[slot].device_address if slot in bound else None
            self._pointers[i] = self._own[i] if address is None else address
        if found:
            self.launch.set_arg(0, self.argument)


class LaunchParameterBuffer:
    """A device buffer: arguments first, each once, then numbers of work-groups.

    args: by step and position. counts: offset of a step's numbers of work-groups, in bytes. buffer: the memory.
    """

    def __init__(self, rt: Runtime, dynamic: DynamicParameters) -> None:
        from ....ptx import step_dependencies  # a start without linked kernels does without

        self._rt = rt
        self._kinds = list(dict.fromkeys((s.value, s.dtype) for s in dynamic.scalars))
        places = {kind: i * _CELL for i, kind in enumerate(self._kinds)}
        self.args = {
            (s.step, s.arg): step_dependencies.DynamicNumber(places[s.value, s.dtype], np.dtype(s.dtype).itemsize)
            for s in dynamic.scalars
        }
        self._items = list(dict.fromkeys(dynamic.items.values()))
        begin = len(self._kinds) * _CELL
        self.counts = {i: begin + _COUNTS * self._items.index(made) for i, made in dynamic.items.items()}
        groups: dict[Any, Any] = {}
        for i, made in dynamic.items.items():
            step = dynamic.program.steps[i]
            assert isinstance(step, LaunchStep)
            groups[made] = step.group
        self._groups = [groups[made] for made in self._items]
        nbytes = max(begin + _COUNTS * len(self._items), _CELL)
        self._bytes = rt.pinned(MAX_IN_FLIGHT * nbytes).reshape(MAX_IN_FLIGHT, nbytes)
        self.buffer = rt.allocate(nbytes)
        self._events: list[Any] = [None] * MAX_IN_FLIGHT  # of the last transfers; freeing one waits for it
        # The numbers as fields of one record, which one assignment converts and packs.
        names = [f"f{i}" for i in range(len(self._kinds) + 3 * len(self._items))]
        formats = [dtype for _, dtype in self._kinds] + ["u4"] * (3 * len(self._items))
        offsets = [i * _CELL for i in range(len(self._kinds))]
        offsets += [begin + 4 * i for i in range(3 * len(self._items))]
        layout = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes})
        self._records = self._bytes.view(layout)[:, 0]
        self._numbers = [number for number, _ in self._kinds]

    def snapshot(self, launches: Mapping[int, PreparedLaunch]) -> bytes:
        """Contents of the buffer for the current arguments and grids of `launches`, by step."""
        raw = bytearray(self.buffer.size)
        for (step, arg), number in self.args.items():
            raw[number.at : number.at + number.nbytes] = launches[step].arguments[arg].tobytes()
        for step, at in self.counts.items():
            grid, group = launches[step].grid, launches[step].group or (1,)
            counts = [-(-n // g) for n, g in zip((*grid, 1, 1)[:3], (*group, 1, 1)[:3], strict=True)]
            raw[at : at + _COUNTS] = np.array(counts, np.uint32).tobytes()
        return bytes(raw)

    def write(self, values: Values, in_flight: int = 0, uploads: InlineUpload | None = None) -> bool:
        """Enqueue the parameters of a run. Returns False if linked kernels were made for other work-group sizes.

        in_flight: runs that are on the queue, below MAX_IN_FLIGHT; earlier ones must have finished. uploads: uploads
        the parameters with a launch, if given.
        """
        numbers = [values[n] for n in self._numbers]
        for made, group in zip(self._items, self._groups, strict=True):
            grid, own = made(values)
            if group is None or (own is not None and own != group):
                return False
            numbers += [-(-n // g) for n, g in zip((*grid, 1, 1)[:3], (*group, 1, 1)[:3], strict=True)]
        if numbers:
            self._records[in_flight] = tuple(numbers)
        if uploads is not None:
            uploads.add_host(self.buffer, self._bytes[in_flight])
            return True
        self._events[in_flight] = self._rt.write(self.buffer, self._bytes[in_flight], wait=False)
        return True
