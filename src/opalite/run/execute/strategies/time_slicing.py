"""TimeSlicedQueue: launches given to the device in slices, so that runs of other threads get it in between.

A device completes what was enqueued before it takes anything else, so a short run would wait for all of a long one. A
slice takes the device for SLICE_S seconds: as many launches as their estimates allow, corrected by the seconds that
slices took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.queue.launch_sequence import LaunchSequence
from ....cl.queue.prepared_launch import PreparedLaunch
from ....plan.template.dynamic_parameters import Values
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..run_trace import RunTrace
from ..shape_instance import least_seconds
from .queue_strategy import Queue
from .strategy import Strategy

SLICE_S = 0.7e-3
LAUNCH_S = 1e-5
"""Least seconds of a launch."""
FEW_CORES = 2
ALONE_S = 2e-3
"""Seconds on one core, with more cores than FEW_CORES, up to which concurrent runs get one core each."""
_PACES = 1.0, 6.0


class DeviceShare(Protocol):
    """The part of the device that a run has while other threads run.

    pace: seconds that launches take for each second of their estimates.
    """

    pace: float

    def exclusive(self) -> AbstractContextManager[None]:
        """A block that has all of the device; to be left after SLICE_S seconds."""

    def reserve_core(self, cores: int) -> AbstractContextManager[None]:
        """A block in which the calling thread may compute on one of the device's `cores` cores."""


class OnOneCore:
    """A strategy that the calling thread executes on one core, beside the runs of other threads."""

    def __init__(self, strategy: Strategy, share: DeviceShare, cores: int) -> None:
        self._strategy, self._share, self._cores = strategy, share, cores
        self.name, self.replay = strategy.name, strategy.replay

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run."""
        with self._share.reserve_core(self._cores):
            return self._strategy.run(host_values, on_device, values, meanwhile)


class TimeSlicedQueue(Queue):
    """A queue with slices. Nothing is recorded: that pays for runs that have the device alone."""

    def __init__(self, plain: Queue, share: DeviceShare) -> None:
        super().__init__(plain.instance, phases=plain.phases)
        self._share = share

    def _estimate(self, launch: PreparedLaunch) -> float:
        return LAUNCH_S + least_seconds([self.instance.step_of(launch)], self.instance.rt)

    def _launch(self, recording: LaunchSequence, resident: HostThreadLoop | None) -> bool:
        if resident is not None:
            resident.dismiss_workers()
        launches = recording.launches
        estimates = [self._estimate(launch) for launch in launches]
        first = 0
        while first < len(launches):
            most = SLICE_S / self._share.pace
            last, estimate = first + 1, estimates[first]
            while last < len(launches) and estimate + estimates[last] <= most:
                estimate += estimates[last]
                last += 1
            with self._share.exclusive():
                self._run_slice(launches[first:last], estimate)
            first = last
        return False

    def _run_slice(self, launches: list[PreparedLaunch], estimate: float) -> None:
        rt = self.instance.rt
        started = time.perf_counter()
        resident = rt.set_resident_worker(None)
        for launch in launches:
            launch.enqueue(rt.queue)
        if resident is not None:
            resident.dismiss_workers()  # its threads find the launches, and need not be woken
        rt.finish()
        took, pace = time.perf_counter() - started, self._share.pace
        # In small steps: the seconds include what other processes do.
        if took > 1.5 * SLICE_S:
            self._share.pace = min(1.1 * pace, _PACES[1])
        elif took < 0.7 * SLICE_S < SLICE_S < 2 * estimate * pace:
            self._share.pace = max(0.9 * pace, _PACES[0])
