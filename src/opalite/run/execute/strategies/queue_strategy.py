"""Queue: every launch enqueued by itself, in order, between uploads, downloads and host operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.queue.event_times import read_times
from ....cl.queue.launch_sequence import LaunchSequence
from ....errors import OpaliteError
from ....plan.program import DownloadStep, LaunchStep, UploadStep
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..launch_batches import LoadedProgram, Phase, Recorder, make_phases
from ..loops.enqueued_loop_iterations import EnqueuedLoopIterations, enqueued_iterations_of
from ..loops.loop_iterations import LoopCarryPlan
from ..memory.output_ring_buffer import OutputRingBuffer
from ..run_trace import RunTrace


class Queue:
    """The strategy that serves every program. Others replace phases of it."""

    name = "queue"
    on_host_thread = False  # whether the calling thread executes all launches, so that nothing is on the queue
    meanwhile: Callable[[], None] | None = None
    """Called in a run while the device computes."""

    def __init__(self, prepared: LoadedProgram, phases: Sequence[Phase] | None = None) -> None:
        self.prepared = prepared
        self.phases = make_phases(prepared) if phases is None else phases
        self._launches = prepared.launch_count
        self._iterations: dict[LoopCarryPlan, EnqueuedLoopIterations | str] = {}

    def iterations(self, plan: LoopCarryPlan) -> EnqueuedLoopIterations | str:
        """A runner of the program as the body of a loop, or why each iteration has to be a run."""
        if plan not in self._iterations:
            self._iterations[plan] = enqueued_iterations_of(self, plan)
        return self._iterations[plan]

    def run(self, host_values: list[Any], on_device: Mapping[int, DeviceTensor]) -> RunTrace:
        """Run all phases and wait.

        host_values: by slot on the host: inputs and constants; gets the outputs. on_device: tensors of outputs, by slot
        on the host, that stay on the device. Resident workers of another megakernel leave once there are launches on
        the queue, which their threads then execute without being woken.
        """
        prepared = self.prepared
        rt = prepared.rt
        resident = None if self.on_host_thread else rt.set_resident_worker(None)
        pending: list[Any] = []  # objects that transfers in flight need
        try:
            return self._run(host_values, on_device, pending, resident)
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
    ) -> RunTrace:
        prepared = self.prepared
        rt, io = prepared.rt, prepared.io
        io.bytes_up = io.bytes_down = 0
        upload_s = compute_s = download_s = host_s = 0.0
        waits = 0
        clock = time.perf_counter
        mark = clock()
        finished, replayed = True, False
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
                pending.append(io.upload(phase, host_values[phase.host]))
                now = clock()
                upload_s += now - mark
            elif isinstance(phase, DownloadStep):
                if phase.host in on_device:
                    host_values[phase.host] = on_device[phase.host]
                    continue
                if not finished:
                    if self.meanwhile is not None:
                        self.meanwhile()
                    rt.finish()
                    waits += 1
                    finished = True
                    now = clock()
                    compute_s += now - mark
                    mark = now
                    self._before_downloads()
                host_values[phase.host], event = io.download(phase)
                pending.append(event)
                now = clock()
                download_s += now - mark
            elif isinstance(phase, HostThreadLoop):
                if any(p is not None for p in pending):
                    rt.finish()
                    waits += 1
                phase.run()
                waits += 1
                now = clock()
                compute_s += now - mark
            else:
                if not finished or any(p is not None for p in pending):
                    rt.finish()  # downloads before it have arrived
                    waits += 1
                prepared.run_on_host(phase, host_values)
                now = clock()
                host_s += now - mark
            mark = now
        # If the calling thread executed all launches, nothing is on the queue.
        if io.copy_inplace_outputs() or not self.on_host_thread or any(p is not None for p in pending):
            rt.finish()
            waits += 1
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
        io, uploads = self.prepared.io, ring.uploads
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
        self.prepared.rt.finish()
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
        """Called in a run after its launches are done, before downloads are enqueued."""

    def replay(self) -> None:
        """Repeat the launches on the inputs that are on the device, without transfers, and wait.

        OpaliteError if a host operator stands between launches.
        """
        for phase in self.phases:
            if isinstance(phase, LaunchSequence):
                self._enqueue(phase)
            elif isinstance(phase, HostThreadLoop):
                phase.run()
            elif not isinstance(phase, UploadStep | DownloadStep):
                raise OpaliteError(f"{phase.node} runs on the host, so the launches alone compute nothing")
        self.prepared.rt.finish()


class Profiled(Queue):
    """Launches one by one on the profiling queue, with the times of each reported to a recorder."""

    def __init__(self, prepared: LoadedProgram, phases: Sequence[Phase], recorder: Recorder) -> None:
        super().__init__(prepared, phases)
        self._recorder = recorder
        self._steps = {id(launch): prepared.program.steps[i] for i, launch in prepared.launches.items()}

    def _launch(self, recording: LaunchSequence, resident: HostThreadLoop | None) -> bool:
        if resident is not None:
            resident.dismiss_workers()
        rt = self.prepared.rt
        rt.finish()
        pairs = [(launch, launch.enqueue(rt.profiling_queue)) for launch in recording.launches]
        rt.profiling_queue.finish()
        for launch, event in pairs:
            if event is not None:
                step = self._steps[id(launch)]
                assert isinstance(step, LaunchStep)
                self._recorder(step, read_times(event, rt.info.name))
        return False
