"""Queue: every launch handed to the device by itself, in order, between uploads, downloads and steps on the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.queue.event_times import read_times
from ....cl.queue.prepared_launch import LaunchSequence
from ....errors import OpaliteError
from ....plan.program import DownloadStep, LaunchStep, UploadStep
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..launch_batches import Phase, Prepared, Recorder, make_phases
from ..loops.enqueued_loop_iterations import EnqueuedLoopIterations, enqueued_iterations_of
from ..loops.loop_iterations import LoopCarryPlan
from ..memory.output_ring_buffer import OutputRingBuffer
from ..run_trace import RunTrace


class Queue:
    """The strategy that serves every program; others change what its phases are."""

    name = "queue"
    on_host_thread = False  # whether the host walks a loop of all launches, so that nothing is on the queue
    meanwhile: Callable[[], None] | None = None
    """What the host does in a run while the device computes."""

    def __init__(self, prepared: Prepared, phases: Sequence[Phase] | None = None) -> None:
        self.prepared = prepared
        self.phases = make_phases(prepared) if phases is None else phases
        self._launches = prepared.launch_count
        self._iterations: dict[LoopCarryPlan, EnqueuedLoopIterations | str] = {}

    def iterations(self, plan: LoopCarryPlan) -> EnqueuedLoopIterations | str:
        """How to run it as the body of a loop, or why its trips have to be runs of their own."""
        if plan not in self._iterations:
            self._iterations[plan] = enqueued_iterations_of(self, plan)
        return self._iterations[plan]

    def run(self, hosts: list[Any], kept: Mapping[int, DeviceTensor]) -> RunTrace:
        """Run all phases and wait.

        hosts: values by slot, inputs and constants filled in, where results go too. kept: outputs by slot that stay on
        the device. Another loop's workers leave once there are launches on the queue, which their threads then take
        without being woken.
        """
        prepared = self.prepared
        rt = prepared.rt
        idle = None if self.on_host_thread else rt.set_resident_worker(None)
        pending: list[Any] = []  # what transfers that were not waited for need
        try:
            return self._run(hosts, kept, pending, idle)
        except BaseException:
            if idle is not None:
                idle.leave()
            with suppress(OpaliteError):
                rt.finish()  # memory may go now, and must not be in use
            raise

    def _run(
        self, hosts: list[Any], kept: Mapping[int, DeviceTensor], pending: list[Any], idle: HostThreadLoop | None
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
                replayed = self._launch(phase, idle) or replayed
                idle = None
                finished = False
                continue
            if idle is not None and not isinstance(phase, UploadStep):
                idle.leave()
                idle = None
            if isinstance(phase, UploadStep):
                pending.append(io.upload(phase, hosts[phase.host]))
                now = clock()
                upload_s += now - mark
            elif isinstance(phase, DownloadStep):
                if phase.host in kept:
                    hosts[phase.host] = kept[phase.host]
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
                hosts[phase.host], event = io.download(phase)
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
                prepared.run_on_host(phase, hosts)
                now = clock()
                host_s += now - mark
            mark = now
        # Where the host walked a loop, nothing is on the queue.
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
        hosts: list[Any],
        kept: Mapping[int, DeviceTensor],
        chained: Mapping[int, int],
        rows: OutputRingBuffer,
        run: int,
    ) -> list[Any]:
        """Put a run, which leaves nothing to operators on the host, on the queue behind others: what must be kept until
        the queue has finished.

        hosts, kept: as `run` has them. relayed: by slot on the host of an input, that of the output of the run before
        which takes its place. rows: what takes outputs, in the row of number `run`.
        """
        io, uploads = self.prepared.io, rows.uploads
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
                    pending.append(io.upload(phase, hosts[phase.host], uploads))
            elif isinstance(phase, DownloadStep):
                if phase.host in kept:
                    hosts[phase.host] = kept[phase.host]
                else:
                    hosts[phase.host], event = rows.download(io, phase, run)
                    pending.append(event)
            else:
                raise OpaliteError(
                    f"{phase.node if not isinstance(phase, HostThreadLoop) else 'a loop'} runs on the host"
                )
        return pending

    def finish(self) -> bool:
        """Wait for what was enqueued; whether it is to be believed."""
        self.prepared.rt.finish()
        return True

    def _launch(self, recording: LaunchSequence, idle: HostThreadLoop | None) -> bool:
        """Whether the launches were replayed."""
        replayed = self._enqueue(recording)
        if idle is not None:
            idle.leave()
        return replayed

    def _enqueue(self, recording: LaunchSequence) -> bool:
        """Whether the launches were replayed."""
        return recording.run()

    def _before_downloads(self) -> None:
        """Called in a run once its launches are done, before outputs are enqueued to be read."""

    def replay(self) -> None:
        """Repeat the launches on the inputs that are on the device, without transfers, and wait.

        OpaliteError where a host step stands between launches.
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
    """Launches one by one on the profiling queue, each one's times told to a recorder."""

    def __init__(self, prepared: Prepared, phases: Sequence[Phase], recorder: Recorder) -> None:
        super().__init__(prepared, phases)
        self._recorder = recorder
        self._steps = {id(launch): prepared.program.steps[i] for i, launch in prepared.launches.items()}

    def _launch(self, recording: LaunchSequence, idle: HostThreadLoop | None) -> bool:
        if idle is not None:
            idle.leave()
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
