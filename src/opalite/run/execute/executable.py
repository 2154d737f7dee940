"""Executable: a Program on a device, ready to run: built, its memory allocated, weights uploaded, arguments set.

A run uploads inputs, enqueues prepared launches and downloads outputs, by the Strategy that a StrategySelector selects.
It builds no program, allocates no device memory and sets no kernel argument, unless sizes or bindings have changed.

`resize` prepares the same program for other sizes in place (docs/sizes.md): one executable serves all of them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from typing import Any

import numpy as np

from ...cl.device.fork_guard import keep_in_forked_children
from ...cl.memory.device_tensor import DeviceTensor
from ...cl.memory.staging_buffer import StagingBuffer
from ...cl.programs.background_throttle import background_planning
from ...cl.runtime import Runtime
from ...cl.runtime_counters import ProgramCounts
from ...plan.program import Program
from ...plan.template.dynamic_parameters import DynamicParameters, Values
from .build_progress_bar import build_progress
from .compile_queue import Job
from .host_operators import HostOperators, HostRunner
from .kernel_arguments import KernelArguments
from .loops.loop_iterations import Iterations, LoopCarryPlan
from .memory.io_transfer import UNBOUND, Bindings, IoTransfer, Target
from .memory.slot_memory import Placed, SlotMemory
from .run_trace import RunTrace
from .shape_instance import ShapeInstance
from .step_schedule import Recorder, StepSchedule
from .strategies.linked_kernel_choice import LinkedKernelChoice, LinkedPrograms
from .strategies.megakernel_builder import Megakernels
from .strategies.persistent_kernel_strategy import may_link
from .strategies.queue_strategy import Profiled, Queue
from .strategies.strategy import Strategy
from .strategies.strategy_selector import StrategySelector
from .strategies.time_slicing import DeviceShare

SIZES_KEPT = 16
"""Shapes that an executable keeps, with a Program, strategies and megakernel tables each."""
_NO_PROGRAM = Program("")
_NONE_ON_DEVICE: Mapping[int, DeviceTensor] = {}


class Entered:
    """A `with` block that holds an executable's lock, with its arguments set for one program.

    The block's value is False if the executable was released: another one has replaced it. The lock of a replica is
    held by the thread that leased the replica. Thread-safe, and may be entered any number of times.
    """

    __slots__ = ("_executable", "_lock", "_program", "_state")

    def __init__(self, executable: Executable, program: Program | None, state: Bindings | None) -> None:
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
            executable.bind_state(self._state)
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
    enqueued launches one by one. current: the instance of the current shape. state: buffers that last from run to run,
    by slot. is_replica: whether the executable has its own memory and shares weights and programs with another
    executable. is_released: whether its memory is freed, so that it cannot run; to be read with `lock`. is_random:
    whether its launches draw random numbers.
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

        is_trial: the executable is only timed or compared: no megakernel, no progress bar. on_built: called with the
        compiled program, before its weights are released. counts: of programs, by where they came from. tier: of the
        plan; generic plans, which are soon replaced, get no megakernel.
        """
        keep_in_forked_children(self)
        self.rt, self.program, self.tier = rt, program, tier
        self.lock = threading.Lock()
        self.is_released = self.is_replica = False
        self.current: ShapeInstance
        self.io: IoTransfer
        self.runs_without_megakernel = 0
        started = time.perf_counter()
        with nullcontext() if is_trial else build_progress() as report:
            built = rt.build_all([s.parts for s in program.sources], report, counts)
        with background_planning():
            if on_built is not None:
                on_built(program)
            self.memory = SlotMemory(rt, program)
            self._run_on_host = HostOperators(host_runner)
            is_lasting = not is_trial and tier == "optimized"
            self._megakernels = Megakernels(rt, self.memory.constants, is_lasting)
            self._links = LinkedPrograms(built) if is_lasting and may_link(rt) else None
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
        other = copy(self)
        keep_in_forked_children(other)
        other.lock, other.program, other.build_s, other.runs_without_megakernel = threading.Lock(), program, 0.0, 0
        other.is_released, other.is_replica = False, True
        other.memory, other._megakernels = self.memory.make_replica(program), self._megakernels.make_replica()
        with background_planning():
            other._initialize(program, self._built)
        return other

    def _initialize(self, program: Program, built: Sequence[Any]) -> None:
        """Create the launches for the first shape. built: by number of the program's sources."""
        self._built = built
        self._instances: OrderedDict[Program, ShapeInstance] = OrderedDict()  # by program, the current one last
        self._schedule, self._arguments, self.state = StepSchedule(program), KernelArguments(), UNBOUND
        self.launches = self._arguments.launches
        self._resize_s = 0.0  # since the last run
        first = self._make_instance(program, self.memory.current)
        self._arguments.prepare(first, built)
        self.is_random = self._arguments.is_random
        self._add_selector(first)
        self._instances[program] = first
        self._enter(first)

    def _make_instance(
        self, program: Program, placed: Placed, dynamic: DynamicParameters | None = None
    ) -> ShapeInstance:
        shared = self._schedule, self._arguments, self._run_on_host
        return ShapeInstance(self.rt, program, placed, *shared, dynamic)

    def _add_selector(self, instance: ShapeInstance) -> None:
        links = None if self._links is None or self.is_random else self._links
        linking = None if links is None else LinkedKernelChoice(instance, links, not self.is_replica)
        instance.selector = StrategySelector(instance, self._megakernels, linking)

    def entered(self, program: Program | None = None, state: Bindings | None = None) -> Entered:
        """A `with` block in which the calling thread may run `program`, None for the current one.

        state: see `bind_state`.
        """
        return Entered(self, program, state)

    def resize(
        self,
        program: Program,
        dynamic: DynamicParameters | None = None,
        tables: Mapping[int, StagingBuffer] | None = None,
    ) -> None:
        """Prepare for `program`, which has the same steps on the same sources, for other sizes.

        dynamic: parameters that change with each run. tables: memory of constants that depend on sizes, by slot, if the
        caller fills it.

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
            instance = self._instances[program] = self._make_instance(program, placed, dynamic)
            self._add_selector(instance)
            if len(self._instances) > SIZES_KEPT:
                self._instances.popitem(last=False)[1].drop_strategies()
        else:
            self._instances.move_to_end(program)
        self._enter(instance)

    def bind_state(self, buffers: Bindings) -> None:
        """Use these buffers of state, by slot, in the next runs."""
        if buffers != self.state:
            self.state = buffers

    def _drop_instances(self) -> None:
        """Release every instance's references to memory."""
        for instance in self._instances.values():
            instance.drop_strategies()
        self._instances.clear()
        self._arguments.release()
        self._megakernels.forget_addresses()
        self.program = _NO_PROGRAM  # until another one is entered
        self.current = self.io = None  # type: ignore[assignment]

    def release(self) -> None:
        """Free all memory, for the executable that replaces this one. The caller holds `lock`."""
        program = self.program
        self.is_released = True
        self._drop_instances()
        self.launches.clear()
        self._megakernels.release()
        self.memory.release()
        self.program = program  # for reports

    def _enter(self, instance: ShapeInstance) -> None:
        """Make an instance the current one. Its strategies are made when they are chosen."""
        self.current, self.program, self.io = instance, instance.program, instance.io

    @property
    def plain(self) -> Queue:
        """The strategy that serves every run: launches one by one."""
        return self.current.selector.plain

    def run(
        self,
        feeds: Sequence[Any],
        targets: Mapping[int, Target] | None = None,
        views: Sequence[int] = (),
        recorder: Recorder | None = None,
        uses_megakernel: bool = True,
        share: DeviceShare | None = None,
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[list[Any], RunTrace]:
        """Run on `feeds`. Returns the outputs in order, and the trace.

        feeds: arrays or DeviceTensors of exactly the ports' dtypes and shapes. targets: outputs, by number, that should
        stay on the device; if a launch writes one, its DeviceTensor is returned for the array. views: outputs, by
        number, that are returned as views of their buffers, valid until the next run. recorder: called with the times
        of every launch. uses_megakernel: False for launches one by one. share: of the device, while other threads run;
        None for all of it. values: dynamic parameters. meanwhile: called while the device computes.
        """
        instance = self.current
        host_values = instance.host_values.copy()
        is_plain = not targets and not views and recorder is None
        for number, value in zip(instance.inputs, feeds, strict=True):
            host_values[number] = value
            if type(value) is not np.ndarray:
                is_plain = False
        on_device: Mapping[int, DeviceTensor] = _NONE_ON_DEVICE
        if not is_plain or instance.io.bound is not self.state:
            on_device = instance.io.bind(host_values, targets or {}, views, self.state)
        selector = instance.selector
        strategy = selector.steady if is_plain and share is None and uses_megakernel else None
        if recorder is not None:
            strategy = Profiled(selector.plain, recorder)
        elif strategy is None:
            strategy = selector.pick(host_values, on_device, is_plain, share) if uses_megakernel else selector.plain
        self.runs_without_megakernel += selector.megakernel is None
        selector.last = strategy
        trace = strategy.run(host_values, on_device, values, meanwhile)
        trace.tier = self.tier
        if self._resize_s:
            trace.build_s, self._resize_s = trace.build_s + self._resize_s, 0.0
        return [host_values[n] for n in instance.outputs], trace

    def iterations(self, plan: LoopCarryPlan) -> Iterations | str:
        """A runner of the program as the body of a loop, without the host between iterations, or why there is none."""
        if self.is_random:
            return "it draws random numbers"
        instance = self.current
        instance.io.bind(instance.host_values, {}, (), self.state)
        instance.selector.last, found = instance.selector.iterations(plan)
        return found

    def count_iterations(self, made: int) -> None:
        """Count iterations of a loop as runs, after which a megakernel is worth building."""
        self.runs_without_megakernel += made
        self.current.selector.count(made)

    @property
    def last(self) -> Strategy:
        """The strategy of the last run of the current shape."""
        return self.current.selector.last or self.plain

    def queueing(self, program: Program) -> str:
        """A sentence on the way of launches of `program` to the device."""
        if self.is_released:
            return "launches: another executable is taking the place of this one"
        return self._instances.get(program, self.current).selector.description

    @property
    def runs_on_host_thread(self) -> bool:
        """Whether the calling thread executes all launches of the current shape."""
        return self.current.selector.runs_on_host_thread

    @property
    def jobs(self) -> list[Job]:
        """The background jobs that link launches, of all shapes."""
        selectors = [getattr(i, "selector", None) for i in list(self._instances.values())]  # None once it is dropped
        return list({id(job): job for s in selectors if s is not None for job in s.jobs}.values())

    def replay(self, program: Program) -> None:
        """Repeat the launches of the last run of `program`, on the inputs that are on the device, and wait.

        Raises OpaliteError if a host step is between launches.
        """
        if program in self._instances:
            self.resize(program)
        self.last.replay()
