"""Executable: a Program on a device, ready to run: built, its memory allocated, weights uploaded, arguments set.

Longer than 400 lines: preparing a program for each shape, and the choice of a strategy for each run, share one state.

A run uploads inputs, enqueues prepared launches and downloads outputs. It builds no program, allocates no device memory
and sets no kernel argument. `Executable._choose` selects the Strategy of a run.

`resize` prepares the same program for other sizes in place (docs/sizes.md): one executable serves all of them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cl.device.fork_guard import keep_in_forked_children
from ...cl.memory.device_tensor import DeviceTensor
from ...cl.memory.staging_buffer import StagingBuffer
from ...cl.programs.background_throttle import background_planning, yield_interpreter
from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.queue.recordable_queues import RecordableQueues
from ...cl.runtime import Runtime
from ...cl.runtime_counters import ProgramCounts
from ...plan.program import Program
from ...pocl.megakernel.host_thread_loop import HostThreadLoop, StepArrays
from .build_progress_bar import build_progress
from .compile_queue import Job
from .host_operators import HostOperators, HostRunner
from .launch_batches import LoadedProgram, Recorder
from .loops.enqueued_loop_iterations import EnqueuedLoopIterations
from .loops.loop_iterations import LoopCarryPlan, LoopIterations
from .memory.io_transfer import IoTransfer, Target
from .memory.slot_memory import Placed, SlotMemory
from .rng_keys import RngKeys, draws
from .run_trace import RunTrace
from .shape_instance import ShapeInstance
from .step_schedule import StepSchedule
from .strategies.describe_strategy import describe_queueing
from .strategies.host_fast_path import HostFastPath, make_host_fast_path
from .strategies.launch_parameter_buffer import LaunchParameterBuffer
from .strategies.megakernel_builder import BuiltMegakernel, MegakernelBuilder
from .strategies.megakernel_strategy import MegakernelStrategy
from .strategies.persistent_kernel_strategy import LinkedKernelCache, PersistentKernelSelector, may_link
from .strategies.queue_strategy import Profiled, Queue
from .strategies.replay_strategy import ReplayStrategy
from .strategies.strategy import Strategy
from .strategies.time_slicing import DeviceShare, TimeSlicedQueue

if TYPE_CHECKING:
    from .strategies.linked_ptx_kernels import LinkedKernels

Array = np.ndarray[Any, Any]
SIZES_KEPT = 16
"""Shapes that an executable keeps, with a Program, strategies and megakernel tables each."""
FEW_CORES = 2
ALONE_S = 2e-3
"""Seconds on one core, with more cores than FEW_CORES, up to which concurrent runs get one core each."""
_MOST_MEGAKERNELS = 4  # of one executable, for shapes whose steps become different functions
_MOST_LINKED = 4  # shapes with linked kernels, each of which the driver compiles for seconds
_NO_PROGRAM = Program("")
_NONE_ON_DEVICE: Mapping[int, DeviceTensor] = {}


class Entered:
    """A `with` block that holds an executable's lock, with its arguments set for one program.

    The block's value is False if the executable was released: another one has replaced it. The lock of a replica is
    held by the thread that leased the replica. Thread-safe, and may be entered any number of times.
    """

    __slots__ = ("_executable", "_lock", "_program", "_state")

    def __init__(self, executable: Executable, program: Program | None, state: Mapping[int, Any] | None) -> None:
        self._executable, self._program, self._state = executable, program, state
        self._lock = None if executable.is_replica else executable.lock

    def __enter__(self) -> bool:
        if self._lock is not None:
            self._lock.acquire()
        executable = self._executable
        if executable.is_released:
            return False
        if executable.program is not self._program or self._state is not None:
            try:
                self._set_arguments(executable)
            except BaseException:
                self.__exit__()
                raise
        return True

    def _set_arguments(self, executable: Executable) -> None:
        if self._state is not None:
            executable.rebind_state_buffers(self._state)
        if self._program is not None and self._program is not executable.program:
            started = time.perf_counter()
            executable.resize(self._program)
            executable._resize_s += time.perf_counter() - started

    def __exit__(self, *exc: object) -> None:
        if self._lock is not None:
            self._lock.release()


class Executable:
    """A Program on a Runtime. Not thread-safe: the thread that runs it holds `lock`.

    launches: by number of their step. build_s: seconds that preparing it took. runs_without_megakernel: runs that
    enqueued launches one by one. rebind_count: how often state buffers were replaced. is_replica: it has memory of its
    own and shares weights and programs with another executable. is_released: it has freed its memory and does not run
    any more; to be read with `lock`. is_random: its launches draw random numbers. may_link: whether its launches may be
    linked into persistent kernels.
    """

    def __init__(
        self,
        rt: Runtime,
        program: Program,
        host_runner: HostRunner | None = None,
        *,
        is_trial: bool = False,
        on_built: Callable[[Program], None] | None = None,
        counts: ProgramCounts | None = None,
        tier: str = "optimized",
    ) -> None:
        """Build, allocate, upload, and set all arguments.

        is_trial: it is made to be timed or compared: no megakernel, no progress bar. on_built: called with the program
        once it has compiled, before its weights are released. tally: counts where programs came from. tier: of the
        plan; generic plans, which are soon replaced, get no megakernel.
        """
        keep_in_forked_children(self)
        self.rt = rt
        self.lock = threading.Lock()
        self.is_released = False
        self.is_replica = False
        self.program = program
        self._current: ShapeInstance
        self.io: IoTransfer
        self.last: Strategy  # of the last run
        self._megakernel: MegakernelStrategy | None
        self._host_fast_path: HostFastPath | None
        self.tier = tier
        self.runs_without_megakernel = self.rebind_count = 0
        started = time.perf_counter()
        with nullcontext() if is_trial else build_progress() as report:
            built = rt.build_all([s.parts for s in program.sources], report, counts)
        with background_planning():
            if on_built is not None:
                on_built(program)
            self.memory = SlotMemory(rt, program)
            self._run_on_host = HostOperators(host_runner)
            self._may_build_megakernel = not is_trial and tier == "optimized"
            self._builders: list[MegakernelBuilder] = []
            self._initialize(program, built)
        rt.finish()
        self.build_s = time.perf_counter() - started
        program.weights = {}  # the device holds them now

    def make_replica(self, program: Program) -> Executable:
        """Another executable with the same programs and weights, and memory of its own, for `program`.

        `program` is one that this executable may be resized to. Both may run at once. A replica uses the megakernels of
        this executable, once those are built, on the calling thread alone. May be called while this executable runs, if
        it is neither released nor random. DeviceMemoryError if memory is short.
        """
        other = object.__new__(Executable)
        keep_in_forked_children(other)
        other.rt, other.tier, other.program, other.build_s = self.rt, self.tier, program, 0.0
        other.runs_without_megakernel = other.rebind_count = 0
        other.lock = threading.Lock()
        other.is_released, other.is_replica = False, True
        other.memory = self.memory.make_replica(program)
        other._run_on_host, other._builders = self._run_on_host, self._builders
        other._may_build_megakernel = self._may_build_megakernel
        with background_planning():
            other._initialize(program, self._built)
        return other

    def _initialize(self, program: Program, built: Sequence[Any]) -> None:
        """Create the launches for the first shape. built: by number of the program's sources."""
        rt = self.rt
        self._built = built
        # Of a replica: its own megakernels, by those that they share functions with.
        self._replica_megakernels: dict[BuiltMegakernel, BuiltMegakernel | None] = {}
        self._instances: OrderedDict[Program, ShapeInstance] = OrderedDict()  # by program, the current one last
        self.launches: dict[int, PreparedLaunch] = {}
        self._schedule = StepSchedule(program)
        self._args_instance: ShapeInstance | None = None  # whose arguments the launches have
        self._args_owner: Any = None  # which object has set some of them (claim_kernel_args)
        first = ShapeInstance(
            program, self.memory.current, self._prepare(program, self.memory.current), self._find_builder(program)
        )
        paused = time.perf_counter()
        for i, step, args in first.launches:
            paused = yield_interpreter(paused)
            self.launches[i] = rt.prepare(built[step.source], step.entry, args, step.grid, step.group, step.node)
            if step.open_group:
                self.launches[i].fit_group(rt.device)
        self._args_instance = first
        self._resize_s = 0.0  # since the last run
        self._rng_keys = RngKeys(program, self.launches)
        self.is_random = bool(self._rng_keys)
        self._instances[program] = first
        self.may_link = self._may_build_megakernel and not (self.is_random or self.is_replica) and may_link(rt)
        self._linked = 0  # sizes
        self._enter(first)
        self.last = self.plain

    def _prepare(self, program: Program, placed: Placed) -> LoadedProgram:
        io = IoTransfer(self.rt, program, placed.staging_buffers, self.launches, self._schedule, self._set_kernel_args)
        return LoadedProgram(self.rt, program, self._schedule, io, self.launches, self._run_on_host)

    def _find_builder(self, program: Program) -> MegakernelBuilder:
        """The builder of the megakernel of `program`, which shapes with the same functions share."""
        found = next((b for b in self._builders if b.serves(program)), None)
        if found is None:
            # A megakernel has constant arguments; those of random launches change in each run.
            builds = self._may_build_megakernel and len(self._builders) < _MOST_MEGAKERNELS and not draws(program)
            found = MegakernelBuilder(self.rt, program if builds else Program(program.name), self.memory.constants)
            if builds:
                self._builders.append(found)
        return found

    # Sizes

    def entered(self, program: Program | None = None, state: Mapping[int, Any] | None = None) -> Entered:
        """A `with` block in which the calling thread may run `program`, None for the current one.

        state: buffers of state by slot, which replace those that the executable has (`rebind_state_buffers`).
        """
        return Entered(self, program, state)

    def resize(self, program: Program, tables: Mapping[int, StagingBuffer] | None = None) -> None:
        """Prepare for `program`, which has the same steps on the same sources, for other sizes.

        tables: memory of constants that depend on sizes, by slot, if the caller fills it.

        Nothing is built, and weights and kernels stay. Launches get the arguments that differ, when they are needed.
        Memory stays if it is large enough. Programs that ran lately are kept with their instance. The device must have
        finished, and views of outputs become invalid.
        """
        if program is self.program:
            return
        instance = self._instances.get(program)
        if instance is None:
            own = None if tables is None else {n: c.buffer for n, c in tables.items()}
            placed = self.memory.place(program, self._drop_instances, own)
            instance = ShapeInstance(program, placed, self._prepare(program, placed), self._find_builder(program))
            self._instances[program] = instance
            if len(self._instances) > SIZES_KEPT:
                self._instances.popitem(last=False)
        else:
            self._instances.move_to_end(program)
            instance.prepared.io.unbind()
        self._enter(instance)

    def rebind_state_buffers(self, memory: Mapping[int, Any]) -> None:
        """Replace buffers of state, which lasts from run to run, by those in `memory`, by slot.

        Only addresses change.
        """
        held = self.memory.reserved
        moved = {slot: m for slot, m in memory.items() if held[slot] is not m}
        if not moved:
            return
        self.rebind_count += 1  # first, so that users of the old addresses see it even if the rest fails
        held.update(moved)
        for instance in self._instances.values():
            instance.move(moved)
        self._args_instance = self._args_owner = self._megakernel = self._host_fast_path = None

    @property
    def current(self) -> ShapeInstance:
        """The instance of the current shape."""
        return self._current

    def claim_kernel_args(self, owner: Any) -> bool:
        """Let `owner` set arguments of the launches. All other arguments are those of the current shape.

        Returns whether the arguments that the same owner set before are still set. Any other owner sets all of them
        anew.
        """
        if self._args_owner is owner:
            return True
        self._set_kernel_args()
        self._args_instance, self._args_owner = None, owner
        return False

    def poll_megakernel(self) -> BuiltMegakernel | None:
        """The megakernel of the current shape, once it is built. To be called before each run."""
        self.runs_without_megakernel += 1
        builder = self._megakernel_builder
        return None if builder.is_idle else self._poll(builder)

    def megakernel_tables_of(self, megakernel: BuiltMegakernel) -> StepArrays:
        """The tables of a megakernel for the current shape."""
        instance = self._current
        if megakernel.host_thread_loop is None:
            self._set_kernel_args()  # some launches may remain between megakernels
        held = self.io.freeze_bindings()
        place = instance.placed.locate
        return megakernel.tables_for(instance.program, lambda s: (held[s.id].buffer, 0) if s.id in held else place(s))

    def _drop_instances(self) -> None:
        """Release every instance's references to memory."""
        self._instances.clear()
        self._args_instance = None
        for launch in self.launches.values():
            launch.release_arguments()
        for own in self._replica_megakernels.values():
            if own is not None:
                own.forget_addresses()
        for builder in () if self.is_replica else self._builders:
            builder.forget_addresses()
        self.program = _NO_PROGRAM  # until another one is entered
        self._current = self.io = self.last = self._megakernel = self._host_fast_path = None  # type: ignore[assignment]

    def release(self) -> None:
        """Free all memory, for the executable that replaces this one. The caller holds `lock`."""
        program = self.program
        self.is_released = True
        self._drop_instances()
        self.launches.clear()
        self._builders, self._replica_megakernels = [], {}
        self.memory.release()
        self.program = program  # for reports

    def _enter(self, instance: ShapeInstance) -> None:
        """Make an instance the current one. Its strategies are made when they are chosen."""
        self._current = instance
        self.program = instance.program
        self.io = instance.prepared.io
        self._host_template, self._inputs, self._outputs = instance.host_template, instance.inputs, instance.outputs
        self._megakernel_builder = instance.builder
        self._host_fast_path = instance.host_fast_path
        self._megakernel = instance.megakernel
        if self.may_link and instance.persistent is None and not instance.program.reserved:
            instance.persistent = PersistentKernelSelector(
                instance.prepared, lambda: self.plain, lambda: self._link(instance)
            )
        if instance.megakernel_tables is not None and (megakernel := self._poll(instance.builder)) is not None:
            megakernel.use(instance.megakernel_tables)

    def _link(self, instance: ShapeInstance) -> LinkedKernels:
        """Link the launches of an instance. Called by a background thread while runs go on."""
        from .strategies.linked_ptx_kernels import (  # PTX, which most devices have none of
            LinkedKernels,
            LinkError,
            find_buffer_ranges,
        )

        if self._linked == _MOST_LINKED:
            raise LinkError(f"launches of {_MOST_LINKED} other shapes are linked")
        self._linked += 1
        places = find_buffer_ranges(instance.program, instance.placed)
        return LinkedKernels(self.rt, instance.program, self.launches, self._built, places)

    def link_dynamic(
        self, instance: ShapeInstance, table: LaunchParameterBuffer, made: LinkedKernelCache
    ) -> LinkedKernels:
        """Link the launches of an instance, with dynamic parameters read from `table`. Called by a background thread.

        made: linked kernels of this program for other state buffers; gets the new ones.
        """
        from .strategies.linked_ptx_kernels import LinkedKernels, find_buffer_ranges

        places = find_buffer_ranges(instance.program, instance.placed)
        return LinkedKernels(self.rt, instance.program, self.launches, self._built, places, table, made)

    def _set_kernel_args(self) -> None:
        """Set the arguments of the current shape on the launches, if others are set."""
        instance, before = self._current, self._args_instance
        if before is instance:
            return
        # Buffers that were bound, and keys of random launches, are recorded in the launches alone.
        knows = before is not None and not before.prepared.io.was_rebound and not self.is_random
        changed = (
            instance.changed_since(before, self._schedule.slots) if knows and before is not None else instance.launches
        )
        self._args_instance = self._args_owner = None  # until all of them are
        paused = time.perf_counter()
        for i, step, args in changed:
            paused = yield_interpreter(paused)
            launch = self.launches[i]
            launch.update(args, step.grid, step.group)
            if step.open_group:
                launch.fit_group(self.rt.device)
        self._args_instance = instance

    @property
    def plain(self) -> Queue:
        """The strategy that serves every run: launches one by one, with their arguments set."""
        self._set_kernel_args()
        instance = self._current
        if instance.plain is None:
            replays = isinstance(self.rt.replay, RecordableQueues)
            instance.plain = ReplayStrategy(instance.prepared) if replays else Queue(instance.prepared)
        return instance.plain

    def run(
        self,
        feeds: Sequence[Any],
        targets: Mapping[int, Target] | None = None,
        views: Sequence[int] = (),
        recorder: Recorder | None = None,
        uses_megakernel: bool = True,
        share: DeviceShare | None = None,
    ) -> tuple[list[Any], RunTrace]:
        """Run on `feeds`. Returns the outputs in order, and the trace.

        feeds: arrays or DeviceTensors of exactly the ports' dtypes and shapes. targets: outputs, by number, that should
        stay on the device; if a launch writes one, its DeviceTensor is returned for the array. views: outputs, by
        number, that are returned as views of their buffers, valid until the next run. recorder: called with the times
        of every launch. uses_megakernel: False for launches one by one. share: of the device, while other threads run;
        None for all of it.
        """
        io = self.io
        if self.is_random:
            self._set_kernel_args()
            self._rng_keys.begin(io.recordings)
        host_values = self._host_template.copy()
        is_plain = not targets and not views and recorder is None
        for number, value in zip(self._inputs, feeds, strict=True):
            host_values[number] = value
            if type(value) is not np.ndarray:
                is_plain = False
        on_device: Mapping[int, DeviceTensor] = _NONE_ON_DEVICE
        if not is_plain or io.has_bindings:
            on_device = self.bind(targets or {}, feeds, views)
        strategy: Strategy | None = self._host_fast_path if uses_megakernel and is_plain else None
        if strategy is None:
            strategy = self._choose(host_values, is_plain, recorder) if uses_megakernel else self.plain
        self.last = strategy
        trace = (
            strategy.run(host_values, on_device)
            if share is None
            else self._run_concurrently(strategy, host_values, on_device, share)
        )
        trace.tier = self.tier
        if self._resize_s:
            trace.build_s, self._resize_s = trace.build_s + self._resize_s, 0.0
        return list(map(host_values.__getitem__, self._outputs)), trace

    def _run_concurrently(
        self, strategy: Strategy, host_values: list[Any], on_device: Mapping[int, DeviceTensor], share: DeviceShare
    ) -> RunTrace:
        """Run with a share of the device: one core for a megakernel on the host, else slices of the whole device."""
        instance = self._current
        cores = self.rt.info.compute_units
        is_walk = self.runs_on_host_thread and strategy in (self._megakernel, self._host_fast_path)
        if is_walk and (cores <= FEW_CORES or instance.alone_s < ALONE_S):
            with share.reserve_core(cores):
                return strategy.run(host_values, on_device)
        if instance.time_sliced is None:
            instance.time_sliced = TimeSlicedQueue(instance.prepared, self.plain, share)
        self._set_kernel_args()
        return instance.time_sliced.run(host_values, on_device)

    def bind(
        self, targets: Mapping[int, Target], feeds: Sequence[Any], views: Iterable[int] = (), copies: bool = False
    ) -> Mapping[int, DeviceTensor]:
        """Bind the buffers of outputs, by number, that stay on the device. Returns the tensors by slot on the host.

        views: outputs that stay in their own buffers. copies: small outputs are copied, so that linked kernels, which
        contain addresses, stay valid.
        """
        on_device = self.io.bind_outputs(targets, feeds, copies)
        for number in views:
            port = self.program.outputs[number]
            if port.host not in on_device and (tensor := self.io.output_view(port)) is not None:
                on_device[port.host] = tensor
        return on_device

    def _choose(self, host_values: Sequence[Any], is_plain: bool, recorder: Recorder | None) -> Strategy:
        """The strategy of this run; after `bind`. is_plain: inputs and outputs are arrays.

        A profile enqueues launches one by one. A program that has run often has a megakernel, built in the background.
        It is used if inputs and outputs have the buffers that it was made with, by the host fast path if all are
        arrays. Otherwise launches are replayed if the device supports that, and enqueued one by one elsewhere.
        """
        if recorder is not None:
            return Profiled(self._current.prepared, self.plain.phases, recorder)
        if self._megakernel is None:
            self.runs_without_megakernel += 1
            builder = self._megakernel_builder
            if builder.is_idle or not self._adopt_megakernel():
                found = None if self.program.reserved else self._current.persistent
                return self.plain if found is None else found.choose(host_values)
        assert self._megakernel is not None
        if is_plain and self._host_fast_path is not None:  # adopted for this run
            return self._host_fast_path
        if not self.io.bindings_match(host_values):
            return self.plain
        if not self._megakernel.on_host_thread:
            self._set_kernel_args()
        return self._megakernel

    def iterations(self, plan: LoopCarryPlan) -> LoopIterations | EnqueuedLoopIterations | str:
        """A runner of the program as the body of a loop, without the host between iterations, or why there is none."""
        if self.is_random:
            return "it draws random numbers"
        if self._megakernel is None and not self._megakernel_builder.is_idle:
            self._adopt_megakernel()
        if self.io.has_bindings:
            self.bind({}, ())
        if self._host_fast_path is not None and not isinstance(found := self._host_fast_path.iterations(plan), str):
            self.last = self._host_fast_path
            return found
        self.last = self.plain
        return self.plain.iterations(plan)

    def count_iterations(self, made: int) -> None:
        """Count iterations of a loop as runs, after which a megakernel is worth building."""
        self.runs_without_megakernel += made
        self._megakernel_builder.count(made)

    def _poll(self, builder: MegakernelBuilder) -> BuiltMegakernel | None:
        """The builder's megakernel, once it is built. A replica has one of its own, on the calling thread alone."""
        megakernel = builder.poll()
        if megakernel is None or not self.is_replica:
            return megakernel
        if megakernel not in self._replica_megakernels:
            self._replica_megakernels[megakernel] = megakernel.make_replica()
        return self._replica_megakernels[megakernel]

    def _adopt_megakernel(self) -> bool:
        """Use the megakernel from now on, if it is built. Returns whether it is."""
        megakernel = self._poll(self._megakernel_builder)
        if megakernel is None:
            return False
        instance = self._current
        instance.megakernel_tables = self.megakernel_tables_of(megakernel)
        megakernel.use(instance.megakernel_tables)
        self._megakernel = instance.megakernel = MegakernelStrategy(instance.prepared, megakernel)
        self._host_fast_path = instance.host_fast_path = make_host_fast_path(instance.prepared, self._megakernel)
        return True

    @property
    def queueing(self) -> str:
        """A sentence on the way of launches to the device: one by one and why, or recorded and replayed."""
        if self.is_released:
            return "launches: another executable is taking the place of this one"
        return describe_queueing(self._current.prepared, self.plain, self._megakernel, self._current.persistent)

    @property
    def host_thread_loop(self) -> HostThreadLoop | None:
        """The megakernel that the calling thread executes, if there is one."""
        return None if self._megakernel is None else self._megakernel.host_thread_loop

    @property
    def runs_on_host_thread(self) -> bool:
        """Whether the calling thread executes all launches of the current shape."""
        loop = self._megakernel
        return loop is not None and loop.on_host_thread

    def inputs_on_device(self, feeds: Sequence[Any]) -> list[DeviceTensor | None]:
        """Views of the uploaded arrays among `feeds`, valid until the next run; None for other inputs."""
        output_view = self.io.input_view
        return [
            output_view(port) if isinstance(array, np.ndarray) else None
            for port, array in zip(self.program.inputs, feeds, strict=True)
        ]

    @property
    def jobs(self) -> list[Job]:
        """The background jobs that link launches of the current shape."""
        current: ShapeInstance | None = self._current  # None after release
        selector = None if current is None else current.persistent
        return self._megakernel_builder.jobs + ([] if selector is None else selector.jobs)

    def replay(self) -> None:
        """Repeat the launches of the last run on the inputs that are on the device, without transfers, and wait.

        OpaliteError where a host step stands between launches.
        """
        self.last.replay()
