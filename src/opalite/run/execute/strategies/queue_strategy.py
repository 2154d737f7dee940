"""Queue: every launch enqueued by itself, in order, between uploads, downloads and host operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....cl.queue.event_times import LaunchTimes, read_times
from ....cl.queue.launch_sequence import LaunchSequence
from ....errors import OpaliteError
from ....plan.program import DownloadStep, UploadStep
from ....plan.template.dynamic_parameters import Values
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..loops.enqueued_loop_iterations import EnqueuedLoopIterations, enqueued_iterations_of
from ..loops.loop_iterations import LoopCarryPlan
from ..memory.output_ring_buffer import OutputRingBuffer
from ..run_trace import RunTrace
from ..shape_instance import ShapeInstance
from ..step_schedule import Phase, Recorder, Replacements, make_phases


class Queue:
    """The strategy that serves every program. Others replace launches of it."""

    name = "queue"
    on_host_thread = False  # whether the calling thread executes all launches, so that nothing is on the queue
    _recorder: Recorder | None = None  # of a profiled run

    def __init__(
        self,
        instance: ShapeInstance,
        replaced: Replacements | None = None,
        loop: HostThreadLoop | None = None,
        replay: bool = False,
        phases: list[Phase] | None = None,
    ) -> None:
        """replaced, loop, replay: see `make_phases`. phases: of another queue; new ones by default."""
        instance.arguments.set(instance)
        self.instance = instance
        self.phases = make_phases(instance, replaced, loop, replay) if phases is None else phases
        self._bound = instance.io.bound  # when launches were recorded
        self._launches = len(instance.launch_steps)
        self._iterations: dict[LoopCarryPlan, EnqueuedLoopIterations | str] = {}
        # Dynamic parameters of launches that are not replaced.
        dynamic, known = instance.dynamic, replaced or {}
        self._scalars = [] if dynamic is None else [s for s in dynamic.scalars if s.step not in known]
        self._grids = [] if dynamic is None else [(i, made) for i, made in dynamic.grids.items() if i not in known]
        self._values: Values = ()  # of the last run
        self._found: dict[int, Any] = {}  # grids and groups of the last run, by step

    def iterations(self, plan: LoopCarryPlan) -> EnqueuedLoopIterations | str:
        """A runner of the program as the body of a loop, or the reason why each iteration is a run."""
        if plan not in self._iterations:
            self._iterations[plan] = enqueued_iterations_of(self, plan)
        return self._iterations[plan]

    def begin(self, values: Values = (), in_flight: int = 0, uploads: InlineUpload | None = None) -> bool:
        """Have launches access the bound buffers, with these dynamic parameters. Returns whether that is possible.

        in_flight: runs on the queue before this one. uploads: uploads small arrays with a launch, if given.
        """
        instance = self.instance
        arguments, bound = instance.arguments, instance.io.bound
        if arguments.instance is not instance or arguments.bound is not bound:
            arguments.set(instance)
        if self._bound is not bound or arguments.is_random:
            self._bound = bound
            arguments.set_keys()
            for phase in self.phases:
                if isinstance(phase, LaunchSequence):
                    phase.invalidate()
        if values:
            self._values = values
            self._set_values(values)
        return True

    def _set_values(self, values: Values) -> None:
        instance, last = self.instance, self._found
        instance.arguments.set_scalars(self._scalars, values)
        changed = False
        for i, made in self._grids:
            grid, group = found = made(values)
            if last.get(i) != found:
                last[i], changed = found, True
            launch = instance.launches[i]
            launch.grid, launch.group = grid, group
        if changed:
            for at, phase in enumerate(self.phases):
                if isinstance(phase, LaunchSequence):
                    self.phases[at] = instance.rt.record(phase.launches)

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run.

        Resident workers of another megakernel leave once there are launches on the queue, which their threads then
        execute without being woken.
        """
        self._values = values
        if not self.begin(values):
            return self.instance.selector.plain.run(host_values, on_device, values, meanwhile)
        rt = self.instance.rt
        resident = None if self.on_host_thread else rt.set_resident_worker(None)
        pending: list[Any] = []  # objects that transfers in flight need
        try:
            return self._run(host_values, on_device, pending, resident, meanwhile)
        except BaseException:
            if resident is not None:
                resident.dismiss_workers()
            with suppress(OpaliteError):
                rt.finish()  # before memory is freed
            raise

    def _run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        pending: list[Any],
        resident: HostThreadLoop | None,
        meanwhile: Callable[[], None] | None,
    ) -> RunTrace:
        instance = self.instance
        rt, io = instance.rt, instance.io
        io.bytes_up = io.bytes_down = 0
        upload_s = compute_s = download_s = host_s = 0.0
        waits = 0
        clock = time.perf_counter
        mark = clock()
        finished, replayed = True, False
        recorder = self._recorder
        small: list[tuple[int, Any]] = []  # outputs in pinned memory, by host slot
        for phase in self.phases:
            if isinstance(phase, LaunchSequence):
                replayed = self._launch(phase, resident) or replayed
                resident = None
                finished = False
                continue
            if resident is not None and not isinstance(phase, UploadStep):
                resident.dismiss_workers()
                resident = None
            if isinstance(phase, UploadStep):
                pending.append(io.upload(phase, host_values[phase.host], is_alone=True))
                now = clock()
                upload_s += now - mark
            elif isinstance(phase, DownloadStep):
                if phase.host in on_device:
                    host_values[phase.host] = on_device[phase.host]
                    continue
                if not finished:
                    if meanwhile is not None:
                        meanwhile()
                    rt.finish()
                    waits += 1
                    finished = True
                    now = clock()
                    compute_s += now - mark
                    mark = now
                    self._before_downloads()
                if (array := io.download_small(phase)) is not None:
                    small.append((phase.host, array))
                else:
                    host_values[phase.host], event = io.download(phase)
                    pending.append(event)
                now = clock()
                download_s += now - mark
            elif isinstance(phase, HostThreadLoop):
                if io.has_tensors or any(p is not None for p in pending):
                    rt.finish()  # what was enqueued for these buffers
                    waits += 1
                phase.run()
                waits += 1
                now = clock()
                compute_s += now - mark
            else:
                if not finished or small or any(p is not None for p in pending):
                    rt.finish()  # downloads before it have arrived
                    waits += 1
                    _copy_out(small, host_values)
                instance.run_on_host(phase, host_values)
                now = clock()
                host_s += now - mark
            if recorder is not None and not isinstance(phase, HostThreadLoop):
                recorder(phase, LaunchTimes(mark, mark, mark, now))
            mark = now
        if not finished:
            self._before_downloads()  # of outputs that stay on the device
        # If the calling thread executed all launches, nothing is on the queue.
        if io.copy_unbound(on_device) or not self.on_host_thread or any(p is not None for p in pending):
            rt.finish()
            waits += 1
        _copy_out(small, host_values)
        rest = clock() - mark
        if finished:
            download_s += rest
        else:
            compute_s += rest
        return RunTrace(
            upload_s=upload_s,
            compute_s=compute_s,
            download_s=download_s,
            host_s=host_s,
            strategy="replay" if replayed else self.name,
            launches=self._launches,
            bytes_up=io.bytes_up,
            bytes_down=io.bytes_down,
            waits=waits,
        )

    def enqueue(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        chained: Mapping[int, int],
        ring: OutputRingBuffer,
        run: int,
    ) -> list[Any]:
        """Enqueue a run after those in flight. Returns an object that must stay alive until the queue has finished.

        The program has no host operators. host_values, on_device: as in `run`. chained: by host slot of an input, the
        host slot of the output of the previous run that replaces it. ring: gets the outputs, in row `run`.
        """
        io, uploads = self.instance.io, ring.uploads
        pending: list[Any] = []
        for phase in self.phases:
            if isinstance(phase, LaunchSequence):
                if uploads is not None:
                    uploads.flush()
                self._enqueue(phase)
            elif isinstance(phase, UploadStep):
                if phase.host in chained:
                    io.chain(chained[phase.host], phase.host, uploads)
                else:
                    pending.append(io.upload(phase, host_values[phase.host], uploads))
            elif isinstance(phase, DownloadStep):
                if phase.host in on_device:
                    host_values[phase.host] = on_device[phase.host]
                else:
                    host_values[phase.host], event = ring.download(io, phase, run)
                    pending.append(event)
            else:
                raise OpaliteError(
                    f"{phase.node if not isinstance(phase, HostThreadLoop) else 'a loop'} runs on the host"
                )
        return pending

    def finish(self) -> bool:
        """Wait for the runs in flight. Returns whether their results are valid."""
        self.instance.rt.finish()
        return True

    def _launch(self, recording: LaunchSequence, resident: HostThreadLoop | None) -> bool:
        """Enqueue launches. Returns whether they were replayed."""
        replayed = self._enqueue(recording)
        if resident is not None:
            resident.dismiss_workers()
        return replayed

    def _enqueue(self, recording: LaunchSequence) -> bool:
        """Enqueue launches. Returns whether they were replayed."""
        return recording.run()

    def _before_downloads(self) -> None:
        """Called in a run after its launches, before downloads are enqueued."""

    def replay(self) -> None:
        """Repeat the launches on the inputs that are on the device, without transfers, and wait.

        Raises OpaliteError if a host operator is between launches.
        """
        if not self.instance.arguments.is_random and not self.begin(self._values):
            self.instance.selector.plain.replay()
            return
        for phase in self.phases:
            if isinstance(phase, LaunchSequence):
                self._enqueue(phase)
            elif isinstance(phase, HostThreadLoop):
                phase.run()
            elif not isinstance(phase, UploadStep | DownloadStep):
                raise OpaliteError(f"{phase.node} runs on the host, so the launches alone compute nothing")
        self.instance.rt.finish()


def _copy_out(small: list[tuple[int, Any]], host_values: list[Any]) -> None:
    """Copy outputs that have arrived in pinned memory."""
    for host, array in small:
        host_values[host] = array.copy()
    small.clear()


class Profiled(Queue):
    """Launches one by one on the profiling queue, with the times of each reported to a recorder."""

    _recorder: Recorder

    def __init__(self, plain: Queue, recorder: Recorder) -> None:
        super().__init__(plain.instance, phases=plain.phases)
        self._recorder = recorder

    def _launch(self, recording: LaunchSequence, resident: HostThreadLoop | None) -> bool:
        if resident is not None:
            resident.dismiss_workers()
        rt = self.instance.rt
        rt.finish()
        begin = time.perf_counter()
        pairs = [(launch, launch.enqueue(rt.profiling_queue)) for launch in recording.launches]
        rt.profiling_queue.finish()
        found = [(launch, read_times(event, rt.info.title)) for launch, event in pairs if event is not None]
        offset = begin - min((times.queued for _, times in found), default=begin)
        for launch, times in found:
            self._recorder(self.instance.step_of(launch), times.shifted(offset))
        return False
