"""MegakernelStrategy: launches joined into megakernels, on the device's threads and perhaps the calling thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....cl.memory.inline_upload import InlineUpload
from ....cl.queue.launch_sequence import LaunchSequence
from ....plan.template.dynamic_parameters import Values, packed
from ....pocl.megakernel.host_thread_loop import HostThreadLoop, StepArrays
from ..memory.io_transfer import UNBOUND, Bindings
from ..shape_instance import ShapeInstance
from .megakernel_builder import BuiltMegakernel
from .queue_strategy import Queue

_MOST = (1 << 64) - 1


class MegakernelStrategy(Queue):
    """A queue with the megakernels of a MegakernelBuilder in place of launches.

    Its tables contain addresses and numbers. own_rows: of the instance's own buffers and largest sizes.
    """

    name = "megakernel"

    def __init__(self, instance: ShapeInstance, megakernel: BuiltMegakernel) -> None:
        self._megakernel = megakernel
        self.own_rows = self._rows = megakernel.tables_for(instance.program, instance.placed.locate)
        megakernel.use(self.own_rows)
        host_loop = megakernel.host_thread_loop
        super().__init__(
            *(instance, None if host_loop else megakernel.launches, host_loop), replay=instance.dynamic is None
        )
        self.on_host_thread = host_loop is not None
        self._table_bound = UNBOUND
        self._args, self._shapes = self.own_rows.args.copy(), self.own_rows.shapes.copy()
        tables = self._tables = megakernel.tables
        dynamic = instance.dynamic
        scalars = [] if dynamic is None else dynamic.scalars
        placed = [(at, (s.value, s.dtype)) for s in scalars if (at := tables.argument(s.step, s.arg)) is not None]
        kinds = list(dict.fromkeys(kind for _, kind in placed))
        self._kinds = [(number, None if np.dtype(t).kind in "iu" else t) for number, t in kinds]
        self._at = np.array([at for at, _ in placed], np.int64)
        self._kind = np.array([kinds.index(kind) for _, kind in placed], np.int64)
        grids = {} if dynamic is None else dynamic.grids
        self._sized = [(i, row, made) for i, made in grids.items() if (row := tables.row(i)) is not None]
        self._set: dict[int, Any] = {}  # grids and groups in the table, by row

    def begin(self, values: Values = (), in_flight: int = 0, uploads: InlineUpload | None = None) -> bool:
        """See Queue.begin."""
        if not self.on_host_thread:
            super().begin(values)  # of launches between megakernels
        bound = self.instance.io.bound
        if values or bound is not self._table_bound:
            if bound is not self._table_bound:
                self._bind_table(bound)
            if values:
                self._set_numbers(values)
            # Users of the tables copy them, so that the same arrays serve all runs.
            self._rows = StepArrays(self._args, self._shapes, self.own_rows.counter_bytes)
        self._megakernel.use(self._rows)
        return True

    def _bind_table(self, bound: Bindings) -> None:
        """Write the addresses of slots whose bindings have changed."""
        before = self._table_bound
        for slot in before.keys() | bound.keys():
            now = bound.get(slot)
            if now is not before.get(slot):
                at = self._tables.arguments_of(slot)
                self._args[at] = self.own_rows.args[at] if now is None else self._megakernel.address_of(now)
        self._table_bound = bound

    def _set_numbers(self, values: Values) -> None:
        """Write dynamic parameters."""
        found = self._set
        if len(self._at):
            numbers = [values[n] & _MOST if t is None else packed(t, values[n]) for n, t in self._kinds]
            self._args[self._at] = np.array(numbers, np.uint64)[self._kind]
        for i, row, made in self._sized:
            grid = made(values)
            if found.get(row) != grid:
                self._shapes[row] = self._tables.shape(i, *grid)
                found[row] = grid

    @property
    def host_thread_loop(self) -> HostThreadLoop | None:
        """The megakernel of all launches, if the calling thread executes it."""
        inner = [p for p in self.phases if isinstance(p, LaunchSequence | HostThreadLoop)]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], HostThreadLoop) else None

    @property
    def description(self) -> str:
        """A phrase on the megakernels."""
        staying = [p.description for p in self.phases if isinstance(p, HostThreadLoop)]
        enqueued = sum(len(p.launches) for p in self.phases if isinstance(p, LaunchSequence))
        return f"joined by a megakernel; {staying[0]}" if staying else f"joined by megakernels into {enqueued}"
