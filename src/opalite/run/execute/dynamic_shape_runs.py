"""DynamicShapeRuns: runs of an Executable whose sizes change in every run, in buffers of the largest sizes.

Between two runs only numbers are set (plan/template/dynamic_parameters.py): in the tables of a megakernel, in the
launch parameter buffer of linked kernels, or as arguments of launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cl.memory.device_tensor import DeviceTensor
from ...cl.memory.inline_upload import InlineUpload
from ...cl.memory.staging_buffer import StagingBuffer
from ...cl.queue.launch_sequence import LaunchSequence
from ...plan.program import DownloadStep, LaunchStep, UploadStep
from ...plan.template.dynamic_parameters import DynamicParameters, Values, packed
from ...pocl.megakernel.host_thread_loop import StepArrays
from .ab_timing import PairedTimes
from .launch_batches import LoadedProgram, Phase
from .memory.io_transfer import Target
from .memory.output_ring_buffer import OutputRingBuffer
from .run_trace import RunTrace
from .strategies.inflight_runs import InflightRuns
from .strategies.launch_parameter_buffer import LaunchParameterBuffer
from .strategies.megakernel_strategy import MegakernelStrategy
from .strategies.persistent_kernel_strategy import LinkedKernelCache, PersistentKernelSelector
from .strategies.queue_strategy import Queue

if TYPE_CHECKING:
    from .executable import Executable
    from .shape_instance import ShapeInstance
    from .strategies.megakernel_builder import BuiltMegakernel

Array = np.ndarray[Any, Any]


class DynamicShapeRuns:
    """Runs of one program with dynamic parameters. Not thread-safe: the caller holds the executable's lock.

    dynamic: the parameters. tables: memory of constants that depend on sizes, by slot.
    """

    def __init__(self, executable: Executable, dynamic: DynamicParameters) -> None:
        """ValueError if the program has host operators."""
        for step in dynamic.program.steps:
            if not isinstance(step, LaunchStep | UploadStep | DownloadStep):
                raise ValueError(f"{step.node} runs on the host")
        self._executable, self.dynamic = executable, dynamic
        self.tables = {n: StagingBuffer(executable.rt, dynamic.program.slots[n].nbytes) for n in dynamic.tables}
        changing = {s.host for i in dynamic.shapes if isinstance(s := dynamic.program.steps[i], DownloadStep)}
        self._changing = {k for k, p in enumerate(dynamic.program.outputs) if p.host in changing}
        self._made_for: tuple[ShapeInstance, int] | None = None  # instance and rebind count of the following
        self._megakernel_runs: _MegakernelRuns | None = None
        self._launches: _LaunchRuns | None = None
        self._linked: _LinkedRuns | None = None
        self._known_times: PairedTimes | None = None  # by which linked kernels were chosen for other state buffers
        self._made = LinkedKernelCache()
        self._ring: OutputRingBuffer | None = None  # of runs in flight

    def run(
        self,
        values: Values,
        feeds: Sequence[Any],
        targets: Mapping[int, Target] | None = None,
        meanwhile: Callable[[], None] | None = None,
        views: Iterable[int] = (),
    ) -> tuple[list[Any], RunTrace]:
        """Run on `feeds`. Returns the outputs in order, and the trace. values: `dynamic.at` of the sizes of `feeds`.

        targets: outputs, by number, that stay on the device if their shape is constant. meanwhile: called while the
        device computes. views: outputs returned as views of their buffers, valid until the next run, likewise.
        """
        executable, dynamic = self._executable, self.dynamic
        if executable.program is not dynamic.program:
            executable.resize(dynamic.program, self.tables)
        instance = executable.current
        self._drop_outdated(instance)
        self._write_tables(values)
        on_device: Mapping[int, DeviceTensor] = {}
        io = executable.io
        if targets or views or io.has_bindings:
            on_device = self._bind(targets or {}, feeds, views)
        if (
            not io.is_rebound
            and self._megakernel_runs is None
            and (megakernel := executable.poll_megakernel()) is not None
        ):
            self._megakernel_runs = _MegakernelRuns(executable, dynamic, megakernel)
        host_values = instance.filled(feeds)
        runs = None if io.is_rebound else self._megakernel_runs
        if runs is not None:
            runs.set(values)
            trace = runs.queue.run(host_values, on_device)
        else:
            trace = self._run_launches(values, host_values, on_device, meanwhile)
        trace.tier = executable.tier
        return [host_values[n] for n in instance.outputs], trace

    def inflight(self, links: Mapping[int, int], views: Iterable[int]) -> InflightRuns | None:
        """An object that keeps several runs on the queue; None if the strategy cannot, or is not chosen yet.

        links: by number of an input, the output of the previous run that it is copied from. views: as in `run`.
        """
        executable, program = self._executable, self.dynamic.program
        if executable.program is not program or self._made_for != (executable.current, executable.rebind_count):
            return None
        io, launches, linked = executable.io, self._launches, self._linked
        if self._megakernel_runs is not None or launches is None or io.is_rebound:
            return None
        if not all(io.can_chain(program.outputs[o], program.inputs[i]) for i, o in links.items()):
            return None
        found = launches if linked is None else linked.decided
        if found is None:
            return None
        if self._ring is None:
            still = (p for k, p in enumerate(program.outputs) if k not in self._changing)
            self._ring = OutputRingBuffer(executable.rt, still)
        chained = {program.inputs[i].host: program.outputs[o].host for i, o in links.items()}
        on_device = self._bind({}, (), views)
        return InflightRuns(executable.current, found, chained, on_device, self._write_tables, self._ring)

    def _bind(
        self, targets: Mapping[int, Target], feeds: Sequence[Any], views: Iterable[int]
    ) -> Mapping[int, DeviceTensor]:
        changing = self._changing
        still = {k: t for k, t in targets.items() if k not in changing}
        executable = self._executable
        return executable.bind(still, feeds, [k for k in views if k not in changing], copies=executable.may_link)

    def _write_tables(self, values: Values, uploads: InlineUpload | None = None) -> list[Any]:
        """Write constants that depend on sizes. Returns an object that must stay alive until the queue has finished."""
        arrays = ((slot, made(values)) for slot, made in self.dynamic.tables.items())
        return [self.tables[slot].write(array, array.dtype, uploads=uploads) for slot, array in arrays]

    def _run_launches(
        self,
        values: Values,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        meanwhile: Callable[[], None] | None,
    ) -> RunTrace:
        """Run with launches one by one, or with linked kernels."""
        executable = self._executable
        runs = self._launches = self._launches or _LaunchRuns(executable, self.dynamic)
        runs.queue.meanwhile = meanwhile
        if executable.may_link and not executable.io.is_rebound:
            linked = self._linked = self._linked or _LinkedRuns(
                executable, self.dynamic, runs, self._made, self._known_times
            )
            return linked.run(values, host_values, on_device, meanwhile)
        runs.queue.values = values
        return runs.queue.run(host_values, on_device)

    def _drop_outdated(self, instance: ShapeInstance) -> None:
        """Drop strategies of another instance or of other state buffers. A megakernel gets the new buffers instead."""
        now = instance, self._executable.rebind_count
        if self._made_for == now:
            return
        if self._made_for is None or self._made_for[0] is not instance:
            self._megakernel_runs = None
        elif self._megakernel_runs is not None:
            self._megakernel_runs.rebind_all_buffers()
        if self._linked is not None:
            self._known_times = self._linked.runs.chosen_times or self._known_times
        self._made_for, self._launches, self._linked = now, None, None


class _DynamicQueue(Queue):
    """Launches one by one, with their parameters set as a part of the run. values: of the next run.

    Setting them takes the host as long as some launches; linked kernels do without.
    """

    def __init__(self, prepared: LoadedProgram, give: Callable[[Values], None]) -> None:
        super().__init__(prepared)
        self._set_values = give
        self.values: Values = ()

    def run(self, host_values: list[Any], on_device: Mapping[int, DeviceTensor]) -> RunTrace:
        """See Strategy.run."""
        self._set_values(self.values)
        return super().run(host_values, on_device)


class _LaunchRuns:
    """Launches one by one."""

    def __init__(self, executable: Executable, dynamic: DynamicParameters) -> None:
        self._executable, self._dynamic = executable, dynamic
        self._last: dict[Any, Any] = {}
        self._numbers: dict[tuple[int, int], Any] = {}  # arguments that were set, by step and position
        self.queue = _DynamicQueue(executable.current.prepared, self._set_values)
        self._phases = _Phases(self.queue, dynamic)

    def begin(self, values: Values, in_flight: int, uploads: InlineUpload | None) -> bool:
        """See EnqueueTarget.begin."""
        self._set_values(values)
        return True

    def _set_values(self, values: Values) -> None:
        executable, dynamic = self._executable, self._dynamic
        launches, last, numbers = executable.launches, self._last, self._numbers
        if not executable.claim_kernel_args(self):
            numbers.clear()
        for s in dynamic.scalars:
            value = values[s.value]
            if numbers.get(place := (s.step, s.arg)) != value:  # a call of the driver each
                launches[s.step].set_arg(s.arg, np.dtype(s.dtype).type(value))
                numbers[place] = value
        changed = False
        for i, made in dynamic.grids.items():
            grid, group = found = made(values)
            if last.get(i) != found:
                last[i], changed = found, True
            launches[i].grid, launches[i].group = grid, group
        self._phases.shape(values)
        if changed:
            self._phases.record(executable)


class _LinkedRuns:
    """Linked kernels that read dynamic parameters from a buffer, or launches one by one.

    Launches go one by one until linked kernels exist, and if these are not faster.
    """

    def __init__(
        self,
        executable: Executable,
        dynamic: DynamicParameters,
        launches: _LaunchRuns,
        made: LinkedKernelCache,
        known_times: PairedTimes | None,
    ) -> None:
        self._dynamic, self._launches = dynamic, launches
        self._table = LaunchParameterBuffer(executable.rt, dynamic)
        self._values: Values = ()
        self._phases: _Phases | None = None  # of linked kernels
        instance = executable.current
        self.runs = instance.persistent = PersistentKernelSelector(
            instance.prepared, self._plain, lambda: executable.link_dynamic(instance, self._table, made), known_times
        )

    def _plain(self) -> Queue:
        self._launches.queue.values = self._values
        return self._launches.queue

    @property
    def queue(self) -> Queue:
        """The strategy of linked kernels, once they are chosen."""
        persistent = self.runs.persistent
        assert persistent is not None
        return persistent

    @property
    def decided(self) -> _LaunchRuns | _LinkedRuns | None:
        """The chosen way to run; None until it is known."""
        runs = self.runs
        if not runs.is_decided:
            return None
        return self if runs.best is runs.persistent else self._launches

    def begin(self, values: Values, in_flight: int, uploads: InlineUpload | None) -> bool:
        """See EnqueueTarget.begin."""
        if not self._table.write(values, in_flight, uploads):
            return False
        self._shape(values)
        return True

    def run(
        self,
        values: Values,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        meanwhile: Callable[[], None] | None,
    ) -> RunTrace:
        """Run with `values`, on arrays."""
        self._values = values
        if not self._table.write(values):
            return self._plain().run(host_values, on_device)
        strategy = self.runs.choose(host_values)
        if (persistent := self._shape(values)) is not None:
            persistent.meanwhile = meanwhile
        return strategy.run(host_values, on_device)

    def _shape(self, values: Values) -> Queue | None:
        """Set the shapes of the linked kernels' downloads. Returns their queue; None if there are none yet."""
        persistent = self.runs.persistent
        if persistent is None:
            return None
        if self._phases is None:
            self._phases = _Phases(persistent, self._dynamic)
        self._phases.shape(values)
        return persistent


class _MegakernelRuns:
    """A megakernel, whose tables are those of the largest sizes except for dynamic parameters."""

    def __init__(self, executable: Executable, dynamic: DynamicParameters, megakernel: BuiltMegakernel) -> None:
        self._executable, self._megakernel, self._dynamic = executable, megakernel, dynamic
        rows = self._copy_tables()
        tables = megakernel.tables
        self._args: list[int] = []
        self._values: list[tuple[int, str]] = []
        apart: list[tuple[int, int, int, str]] = []
        for s in dynamic.scalars:
            at = tables.argument(s.step, s.arg)
            if at is None:
                apart.append((s.step, s.arg, s.value, s.dtype))
            else:
                self._args.append(at)
                self._values.append((s.value, s.dtype))
        kinds = list(dict.fromkeys(self._values))
        self._kinds = [(number, None if np.dtype(t).kind in "iu" else t) for number, t in kinds]
        self._at = np.array(self._args, np.int64)
        self._kind = np.array([kinds.index(v) for v in self._values], np.int64)
        self._shapes = [(i, row, made) for i, made in dynamic.grids.items() if (row := tables.row(i)) is not None]
        if apart or len(self._shapes) < len(dynamic.grids):
            raise ValueError("launches outside the megakernel have dynamic parameters")
        megakernel.use(rows)
        self.queue = MegakernelStrategy(executable.current.prepared, megakernel)
        self._phases = _Phases(self.queue, dynamic)

    def rebind_all_buffers(self) -> None:
        """Read the addresses of all buffers anew."""
        self._copy_tables()

    def _copy_tables(self) -> StepArrays:
        rows = self._executable.megakernel_tables_of(self._megakernel)
        self._table, self._grids = rows.args.copy(), rows.shapes.copy()
        self._counter_bytes = rows.counter_bytes
        self._found: dict[int, Any] = {}  # grids and groups that are set, by row
        return rows

    def set(self, values: Values) -> None:
        """Set the parameters of the next run. Users of the tables copy them, so that the same arrays serve all runs."""
        table, grids, found = self._table, self._grids, self._found
        if len(self._at):
            numbers = [values[n] & _MOST if t is None else packed(t, values[n]) for n, t in self._kinds]
            table[self._at] = np.array(numbers, np.uint64)[self._kind]
        for i, row, made in self._shapes:
            grid = made(values)
            if found.get(row) != grid:
                grids[row] = self._megakernel.tables.shape(i, *grid)
                found[row] = grid
        self._megakernel.use(StepArrays(table, grids, self._counter_bytes))
        self._phases.shape(values)


_MOST = (1 << 64) - 1


class _Phases:
    """The phases of a queue whose downloads have another shape in each run."""

    def __init__(self, queue: Queue, dynamic: DynamicParameters) -> None:
        self._phases: list[Phase] = list(queue.phases)
        queue.phases = self._phases
        steps = dynamic.program.steps
        numbers = {id(steps[i]): i for i in dynamic.shapes}
        self._downloads: list[tuple[int, DownloadStep, Any]] = []
        for at, phase in enumerate(queue.phases):
            if isinstance(phase, DownloadStep) and id(phase) in numbers:
                self._downloads.append((at, phase, dynamic.shapes[numbers[id(phase)]]))

    def shape(self, values: Values) -> None:
        """Set the shapes of downloads."""
        phases = self._phases
        for at, step, made in self._downloads:
            phases[at] = replace(step, shape=made(values))

    def record(self, executable: Executable) -> None:
        """Record the launches anew, because grids have changed."""
        for at, phase in enumerate(self._phases):
            if isinstance(phase, LaunchSequence):
                self._phases[at] = executable.rt.record(phase.launches)
