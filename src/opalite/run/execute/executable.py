"""Executable: a Program made ready on a device - built, its memory allocated, weights uploaded, every argument set.

After that a run uploads inputs, enqueues prepared launches and downloads outputs: it builds no program, allocates no
device memory and sets no kernel argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ...cl.events import LaunchTimes, read_times
from ...cl.forks import keep_in_children
from ...cl.launch import LocalBytes, PreparedLaunch, Recording
from ...cl.replay import Replay
from ...cl.runtime import Runtime
from ...cl.tensor import Crossing, DeviceTensor
from ...cl.weights import SharedWeight
from ...errors import OpaliteError
from ...ir.device_family import SLOW_SUB_BUFFERS
from ...plan.program import (
    DownloadStep,
    HostStep,
    LaunchStep,
    LocalArg,
    Program,
    ReferenceStep,
    ScalarArg,
    SlotArg,
    StepArg,
    Storage,
    UploadStep,
)
from ...pocl.loop.host_loop import HostLoop
from .draws import Draws
from .exchange import Exchange, Target, steps_outside
from .loop_builder import LoopBuilder
from .progress import build_progress
from .slot_memory import pool_slots
from .trace import Timing

Array = np.ndarray[Any, Any]
Recorder = Callable[[Any, LaunchTimes], None]
"""Called with the LaunchStep and the times of each launch of a profiled run."""
HostRunner = Callable[[HostStep, Sequence[Any]], Sequence[Any]]
Phase = Recording | HostLoop | UploadStep | DownloadStep | HostStep | ReferenceStep
"""A step, or all the launches between two steps of another kind."""


class Executable:
    """A Program on a Runtime. Not thread-safe: the session holds its lock while running one.

    step_loops: whether launches may be joined once the program has run often (run/loop_builder.py).
    """

    def __init__(
        self,
        rt: Runtime,
        program: Program,
        host_runner: HostRunner | None = None,
        *,
        step_loops: bool = True,
        on_built: Callable[[Program], None] | None = None,
    ) -> None:
        """on_built: told of the program when all of it has compiled, and before its weights are taken away."""
        keep_in_children(self)
        self.rt = rt
        self.program = program
        self._host_runner = host_runner
        started = time.perf_counter()
        with build_progress() as tell:
            built = rt.build_all([(s.text, s.options, s.name) for s in program.sources], tell)
        if on_built is not None:
            on_built(program)
        self._weights: list[SharedWeight] = []
        self._crossings: dict[int, Crossing] = {}  # slots of inputs and outputs
        self._memory = self._allocate()
        self.launches: dict[int, PreparedLaunch] = {
            i: rt.prepare(built[s.source], s.entry, [self._arg(a) for a in s.args], s.grid, s.group, s.node)
            for i, s in enumerate(program.steps)
            if isinstance(s, LaunchStep)
        }
        for i, launch in self.launches.items():
            if program.steps[i].open_group:  # type: ignore[union-attr]
                launch.fit_group(rt.device)
        self._step_of = {id(launch): program.steps[i] for i, launch in self.launches.items()}
        self.recorder: Recorder | None = None  # set to profile the runs that follow
        self._replay = rt.replay
        self.may_overflow = False  # whether halves may not hold the values, so that outputs must be looked at
        self.is_proven = False  # whether a run's outputs were looked at: before that none stays on the device
        sizes = {s.id: s.nbytes for s in program.slots}
        for step in program.steps:
            if isinstance(step, DownloadStep) and step.slot not in self._crossings:  # a weight
                memory = self._memory[step.slot]
                self._crossings[step.slot] = Crossing(rt, sizes[step.slot], memory)
        self.exchange = Exchange(rt, program, self._crossings, self.launches)
        self._draws = Draws(program, self.launches)
        self._plain = self._phases = self._make_phases({i: [launch] for i, launch in self.launches.items()})
        self._last = self._plain  # the phases of the last run
        self._stays = False  # whether `_phases` has all launches in a loop that the host walks
        may_join = step_loops and not self._draws  # a step loop keeps the arguments that it was made with
        self._loops = LoopBuilder(rt, program if may_join else Program(program.name), self._memory)
        rt.finish()
        self.build_s = time.perf_counter() - started
        program.weights = {}  # the device holds them now

    def _allocate(self) -> dict[int, Any]:
        rt, program = self.rt, self.program
        whole = pool_slots(program, rt.make_buffer_pool()) if SLOW_SUB_BUFFERS in rt.info.quirks else {}
        pooled = [s for s in program.slots if s.storage is Storage.DYNAMIC and s.image is None and s.id not in whole]
        arena = rt.make_arena([(s.offset, s.nbytes) for s in pooled]) if pooled else None
        images = [rt.make_image(w, h, dtype) for w, h, dtype in program.image_pool]
        memory: dict[int, Any] = {}
        for slot in program.slots:
            if slot.id in whole:
                memory[slot.id] = whole[slot.id]
            elif slot.storage is Storage.STATIC:
                array, key = program.weights[slot.id], program.weight_keys.get(slot.id)
                weight = rt.share_weight(array, image=slot.image is not None, key=key)
                self._weights.append(weight)
                memory[slot.id] = weight.memory
            elif slot.image is not None:
                memory[slot.id] = images[slot.image_slot]
            elif slot.storage is Storage.SEPARATE or arena is None:
                crossing = self._crossings[slot.id] = Crossing(rt, slot.nbytes)
                memory[slot.id] = crossing.buffer
            else:
                memory[slot.id] = arena.region(slot.offset, slot.nbytes)
        return memory

    @property
    def queueing(self) -> str:
        """How launches reach the device, in a sentence: one by one and why, or recorded and replayed."""
        recordings = [p for p in self._phases if isinstance(p, Recording)]
        launches = len([launch for launch in self.launches.values() if not launch.is_empty])
        enqueued = sum(len(r.launches) for r in recordings)
        replayed = [r for r in recordings if r.replays]
        parts = [f"launches: {launches}" + (f" in {len(recordings)} parts" if len(recordings) > 1 else "")]
        if self._phases is not self._plain:
            parts.append(self._loop_words(enqueued))
        if replayed:
            count = "one command buffer" if len(replayed) == 1 else f"{len(replayed)} command buffers"
            parts.append(f"replayed as {count} from the second run on ({self._replay})")
        else:
            refusal = next((r.refusal for r in recordings if r.refusal), "") or self._replay
            why = "a replay pays from two on" if isinstance(refusal, Replay) else refusal
            parts.append(f"enqueued one by one: {why}")
        if self.rt.flush_every:
            parts.append(f"flushed every {self.rt.flush_every}")
        return "; ".join(parts)

    def _loop_words(self, enqueued: int) -> str:
        staying = [p.description for p in self._phases if isinstance(p, HostLoop)]
        return f"joined by a step loop; {staying[0]}" if staying else f"joined by step loops into {enqueued}"

    def _arg(self, a: StepArg) -> Any:
        if isinstance(a, SlotArg):
            return self._memory[a.slot]
        if isinstance(a, LocalArg):
            return LocalBytes(a.nbytes)
        assert isinstance(a, ScalarArg)
        return a.value

    def _make_phases(
        self, launches: Mapping[int, Sequence[PreparedLaunch]], loop: HostLoop | None = None
    ) -> list[Phase]:
        """Steps in order, with what is launched for each launch step put together, or `loop` for all of them.

        What needs no launch goes before all, and what no launch needs after all.
        """
        steps = self.program.steps
        first, last = steps_outside(self.program)
        moved = {id(s) for s in (*first, *last)}
        phases: list[Phase] = [s for s in first if not isinstance(s, LaunchStep)]
        waiting: list[PreparedLaunch] = []
        for i, step in enumerate(steps):
            if isinstance(step, LaunchStep):
                waiting.extend(launches[i])
            elif id(step) not in moved:
                self._add_recording(phases, waiting, loop)
                waiting = []
                phases.append(step)
        self._add_recording(phases, waiting, loop)
        return phases + [s for s in last if not isinstance(s, LaunchStep)]

    def _add_recording(self, phases: list[Phase], launches: list[PreparedLaunch], loop: HostLoop | None) -> None:
        if launches and loop is not None:
            phases.append(loop)
        elif launches:
            recording = self.rt.record(launches, replay=True)
            self.exchange.recordings.append(recording)
            phases.append(recording)

    def run(
        self, feeds: Sequence[Any], targets: Mapping[int, Target] | None = None, lent: Sequence[int] = ()
    ) -> tuple[list[Any], Timing]:
        """Outputs in order for `feeds`, and where the time went.

        feeds: arrays or DeviceTensors of exactly the ports' dtypes and shapes. targets: outputs, by number, that should
        stay on the device; where a launch writes one, the DeviceTensor stands for the array. lent: outputs that nobody
        reads after the next run, which stay where they are likewise.
        """
        program = self.program
        self._draws.begin(self.exchange.recordings)
        hosts: list[Any] = [None] * program.host_slots
        for number, array in program.host_consts.items():
            hosts[number] = array
        for port, array in zip(program.inputs, feeds, strict=True):
            hosts[port.host] = array
        kept = self.exchange.keep(targets or {}, feeds)
        for number in lent:
            port = program.outputs[number]
            if port.host not in kept and (tensor := self.exchange.lend(port)) is not None:
                kept[port.host] = tensor
        self._last = self._plain if self.recorder is not None else self._current_phases()
        if self._last is not self._plain and not self.exchange.is_held(hosts):
            self._last = self._plain
        stays = self._stays and self._last is not self._plain
        idle = None if stays else self.rt.take_residence(None)
        pending: list[Any] = []  # what transfers that were not waited for need
        try:
            timing = self._run_phases(hosts, kept, pending, stays, idle)
        except BaseException:
            if idle is not None:
                idle.leave()
            with suppress(OpaliteError):
                self.rt.finish()  # memory may go now, and must not be in use
            raise
        return [hosts[port.host] for port in program.outputs], timing

    def _run_phases(
        self,
        hosts: list[Any],
        kept: Mapping[int, DeviceTensor],
        pending: list[Any],
        stays: bool,
        idle: HostLoop | None,
    ) -> Timing:
        """stays: whether the host walks a loop of all launches. idle: the loop whose workers are there instead.

        Those leave once there are launches on the queue, which their threads then take without being woken.
        """
        rt, exchange = self.rt, self.exchange
        timing = Timing()
        clock = time.perf_counter
        mark = clock()
        finished = True
        for phase in self._last:
            if isinstance(phase, Recording) and self.recorder is None:
                phase.run()
            if idle is not None and not isinstance(phase, UploadStep):
                idle.leave()
                idle = None
            if isinstance(phase, Recording):
                if self.recorder is not None:
                    self._run_recorded(phase)
                finished = False
                continue
            if isinstance(phase, HostLoop):
                if any(p is not None for p in pending):
                    rt.finish()
                phase.run()
                now = clock()
                timing.compute_s += now - mark
            elif isinstance(phase, UploadStep):
                pending.append(exchange.upload(phase, hosts[phase.host]))
                now = clock()
                timing.upload_s += now - mark
            elif isinstance(phase, DownloadStep):
                if phase.host in kept:
                    hosts[phase.host] = kept[phase.host]
                    continue
                if not finished:
                    rt.finish()
                    finished = True
                    now = clock()
                    timing.compute_s += now - mark
                    mark = now
                hosts[phase.host], event = exchange.download(phase)
                pending.append(event)
                now = clock()
                timing.download_s += now - mark
            else:
                if not finished or any(p is not None for p in pending):
                    rt.finish()  # downloads before it have arrived
                self.run_on_host(phase, hosts)
                now = clock()
                timing.host_s += now - mark
            mark = now
        # Where the host walked a loop, nothing is on the queue.
        if exchange.copy_kept() or not stays or any(p is not None for p in pending):
            rt.finish()
        if finished:
            timing.download_s += clock() - mark
        else:
            timing.compute_s += clock() - mark
        return timing

    def _current_phases(self) -> list[Phase]:
        """The phases to run next: with step loops from the time on when they are ready."""
        if not self._loops.is_over and (loops := self._loops.poll(self.exchange.hold)) is not None:
            launches = {i: [launch] for i, launch in self.launches.items()}
            self._stays = isinstance(loops, HostLoop)
            if isinstance(loops, HostLoop):
                self._phases = self._make_phases(launches, loops)
            else:
                self._phases = self._make_phases(launches | loops)
        return self._phases

    def inputs_on_device(self, feeds: Sequence[Any]) -> list[DeviceTensor | None]:
        """The arrays among `feeds` as they lie on the device after a run, until the next; None for what does not."""
        lend = self.exchange.lend_input
        return [
            lend(port) if isinstance(array, np.ndarray) else None
            for port, array in zip(self.program.inputs, feeds, strict=True)
        ]

    @property
    def host_loop(self) -> HostLoop | None:
        """The loop of all launches that the host walked in the last run."""
        if self._last is self._plain or not self._stays:
            return None
        inner = [p for p in self._last if isinstance(p, Recording | HostLoop)]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], HostLoop) else None

    def host_steps(self) -> tuple[list[HostStep | ReferenceStep], list[HostStep | ReferenceStep]]:
        """Operators on the host before and after the loop of all launches, in order."""
        at = next(i for i, p in enumerate(self._last) if isinstance(p, HostLoop))
        parts = self._last[:at], self._last[at:]
        before, after = ([p for p in part if isinstance(p, HostStep | ReferenceStep)] for part in parts)
        return before, after

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for what is built in the background; whether it is done."""
        return self._loops.wait(timeout)

    def replay(self) -> None:
        """Repeat the launches of the last run on the inputs that are on the device, without transfers, and wait.

        OpaliteError where a host step stands between launches.
        """
        for phase in self._last:
            if isinstance(phase, Recording | HostLoop):
                phase.run()
            elif not isinstance(phase, UploadStep | DownloadStep):
                raise OpaliteError(f"{phase.node} runs on the host, so the launches alone compute nothing")
        self.rt.finish()

    def _run_recorded(self, phase: Recording) -> None:
        """Run launches on the profiling queue and keep their times."""
        rt = self.rt
        rt.finish()
        pairs = [(launch, launch.enqueue(rt.profiling_queue)) for launch in phase.launches]
        rt.profiling_queue.finish()
        assert self.recorder is not None
        for launch, event in pairs:
            if event is not None:
                self.recorder(self._step_of[id(launch)], read_times(event, rt.info.name))

    def run_on_host(self, step: HostStep | ReferenceStep, hosts: list[Any]) -> None:
        """Run one operator on what `hosts` has, where its results go too."""
        ins: list[Any] = [None if number < 0 else hosts[number] for number in step.inputs]
        if any(type(v) is DeviceTensor for v in ins):
            ins = [on_host(v) for v in ins]
        try:
            if isinstance(step, ReferenceStep):
                outs: Sequence[Any] = step.op.reference(ins)
            else:
                assert self._host_runner is not None, f"{step.node} needs the onnx package"
                outs = self._host_runner(step, ins)
        except OpaliteError as e:
            raise e.add_context(f"while running {step.node} on the host") from e
        for number, value in zip(step.outputs, outs, strict=False):
            hosts[number] = value


def on_host(value: Any) -> Any:
    """The value as an array where it lies on the device."""
    return value.numpy() if isinstance(value, DeviceTensor) else value
