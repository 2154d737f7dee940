"""TimeSlicedQueue: launches handed to the device a slice at a time, so that runs of other threads come in between.

A device works on what it was given until it is done with it, so a short run would wait for all of a long one. Each
slice takes the device for SLICE_S; what that is in launches, their estimates tell, which are corrected by what slices
took.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Protocol

from ....cl.queue.prepared_launch import LaunchSequence, PreparedLaunch
from ....plan.program import LaunchStep
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..launch_batches import Prepared
from .megakernel_builder import least_seconds
from .queue_strategy import Queue

SLICE_S = 0.7e-3
LAUNCH_S = 1e-5
"""What a launch takes at least."""
_PACES = 1.0, 6.0


class DeviceShare(Protocol):
    """What runs beside those of other threads are given of the device.

    pace: seconds that launches take for each second of their estimates.
    """

    pace: float

    def exclusive(self) -> AbstractContextManager[None]:
        """Inside, all of the device is the caller's; to be left after SLICE_S."""

    def reserve_core(self, cores: int) -> AbstractContextManager[None]:
        """Inside, the calling thread may compute by itself on one of the device's cores."""


class TimeSlicedQueue(Queue):
    """As the queue. Nothing is recorded, for that pays with runs that are alone."""

    def __init__(self, prepared: Prepared, plain: Queue, share: DeviceShare) -> None:
        super().__init__(prepared, plain.phases)
        self._share = share
        self._steps = {id(launch): prepared.program.steps[i] for i, launch in prepared.launches.items()}

    def _estimate(self, launch: PreparedLaunch) -> float:
        step = self._steps[id(launch)]
        assert isinstance(step, LaunchStep)
        return LAUNCH_S + least_seconds([step], self.prepared.rt)

    def _launch(self, recording: LaunchSequence, idle: HostThreadLoop | None) -> bool:
        if idle is not None:
            idle.leave()
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
        rt = self.prepared.rt
        started = time.perf_counter()
        idle = rt.set_resident_worker(None)
        for launch in launches:
            launch.enqueue(rt.queue)
        if idle is not None:
            idle.leave()  # the device's threads find the launches, and need not be woken
        rt.finish()
        took, pace = time.perf_counter() - started, self._share.pace
        # By little: what other processes do meanwhile counts, too.
        if took > 1.5 * SLICE_S:
            self._share.pace = min(1.1 * pace, _PACES[1])
        elif took < 0.7 * SLICE_S < SLICE_S < 2 * estimate * pace:
            self._share.pace = max(0.9 * pace, _PACES[0])
