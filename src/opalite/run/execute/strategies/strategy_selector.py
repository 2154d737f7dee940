"""StrategySelector: the one place that decides how the launches of a program and shape reach the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.queue.launch_sequence import LaunchSequence
from ....cl.queue.recordable_queues import RecordableQueues
from ..compile_queue import Job
from ..loops.loop_iterations import Iterations, LoopCarryPlan
from ..shape_instance import ShapeInstance
from .host_fast_path import HostFastPath, make_host_fast_path
from .linked_kernel_choice import LinkedKernelChoice
from .megakernel_builder import Megakernels
from .megakernel_strategy import MegakernelStrategy
from .queue_strategy import Queue
from .strategy import Strategy
from .time_slicing import ALONE_S, FEW_CORES, DeviceShare, OnOneCore, TimeSlicedQueue


class StrategySelector:
    """The strategies of one ShapeInstance, each made when it is first chosen.

    The thread that holds the executable's lock calls it. builder: of the megakernel. megakernel: launches joined.
    host_fast_path: the megakernel between two copies of arrays. linking: chooses linked kernels, where they are
    supported. steady: what `pick` returns for all runs on arrays; None if that may change. last: the strategy of the
    last run, if there was one.
    """

    def __init__(self, instance: ShapeInstance, megakernels: Megakernels, linking: LinkedKernelChoice | None) -> None:
        self._instance, self._megakernels, self.linking = instance, megakernels, linking
        self.builder = megakernels.find_builder(instance.program)
        self.megakernel: MegakernelStrategy | None = None
        self.host_fast_path: HostFastPath | None = None
        self.steady: Strategy | None = None
        self.last: Strategy | None = None
        self._plain: Queue | None = None
        self._sliced: TimeSlicedQueue | None = None

    @property
    def plain(self) -> Queue:
        """The strategy that serves every run: launches one by one."""
        if self._plain is None:
            replays = isinstance(self._instance.rt.replay, RecordableQueues) and self._instance.dynamic is None
            self._plain = Queue(self._instance, replay=replays)
        return self._plain

    def pick(
        self,
        host_values: Sequence[Any],
        on_device: Mapping[int, DeviceTensor],
        is_plain: bool,
        share: DeviceShare | None = None,
    ) -> Strategy:
        """The strategy of a run with these inputs, and outputs on the device, which are bound.

        is_plain: inputs and outputs are arrays. share: of the device, while other threads run; None for all of it.
        """
        if self.megakernel is not None or self._adopt_megakernel():
            assert self.megakernel is not None
            strategy: Strategy = self.host_fast_path or self.megakernel if is_plain else self.megakernel
        elif self.linking is not None:
            strategy = self.linking.choose(self.plain, host_values, on_device)
        else:
            strategy = self.plain
            self.steady = strategy if self.builder.is_idle else None
        return strategy if share is None else self._shared(strategy, share)

    def _shared(self, strategy: Strategy, share: DeviceShare) -> Strategy:
        """The strategy of a run beside those of other threads.

        A CPU gives one core to a megakernel that the calling thread executes, and itself in slices to other launches.
        A GPU executes runs in turn: its queue is in order, and the host would wait after each slice.
        """
        info = self._instance.rt.info
        if not info.on_host:
            return strategy
        if self.runs_on_host_thread and (info.compute_units <= FEW_CORES or self._instance.alone_s < ALONE_S):
            return OnOneCore(strategy, share, info.compute_units)
        if self._sliced is None:
            self._sliced = TimeSlicedQueue(self.plain, share)
        return self._sliced

    def settled(self) -> Queue | None:
        """The strategy of runs in flight; None if it is not known yet, or cannot keep several runs on the queue."""
        if self._plain is None or self.megakernel is not None:
            return None
        if self.linking is None:
            return self._plain
        return self.linking.best(self._plain) if self.linking.is_decided else None

    def iterations(self, plan: LoopCarryPlan) -> tuple[Strategy, Iterations | str]:
        """The strategy of a loop's iterations with its runner, or the reason why each iteration is a run."""
        if self.megakernel is None:
            self._adopt_megakernel()
        fast = self.host_fast_path
        if fast is not None and not isinstance(found := fast.iterations(plan), str):
            return fast, found
        if self.linking is not None:
            return self.linking.iterations(self.plain, plan)
        return self.plain, self.plain.iterations(plan)

    def count(self, iterations: int) -> None:
        """Count iterations of a loop as runs, after which launches are worth joining."""
        self.builder.count(iterations)
        if self.linking is not None:
            self.linking.count(iterations)

    def _adopt_megakernel(self) -> bool:
        """Use the megakernel from now on, if it is built. Returns whether it is."""
        if self.builder.is_idle or (built := self._megakernels.poll(self.builder)) is None:
            return False
        self.megakernel = MegakernelStrategy(self._instance, built)
        self.host_fast_path = make_host_fast_path(self.megakernel)
        self.steady = self.host_fast_path or self.megakernel
        return True

    @property
    def runs_on_host_thread(self) -> bool:
        """Whether the calling thread executes all launches."""
        return self.megakernel is not None and self.megakernel.on_host_thread

    @property
    def jobs(self) -> list[Job]:
        """The background jobs that link launches."""
        return self.builder.jobs + ([] if self.linking is None else self.linking.jobs)

    @property
    def description(self) -> str:
        """A sentence on the way of launches to the device: one by one and why, joined, linked, or replayed."""
        instance, linking = self._instance, self.linking
        rt = instance.rt
        recordings = [p for p in (self.megakernel or self.plain).phases if isinstance(p, LaunchSequence)]
        replayed = [r for r in recordings if r.replays]
        stretches = f" in {len(recordings)} parts" if len(recordings) > 1 else ""
        parts = [f"launches: {len(instance.launch_steps)}{stretches}"]
        if self.megakernel is not None:
            parts.append(self.megakernel.description)
        if linking is not None and linking.description:
            parts.append(linking.description)
        elif replayed:
            count = "one recording" if len(replayed) == 1 else f"{len(replayed)} recordings"
            parts.append(f"replayed as {count} from the second run on ({rt.replay})")
        else:
            refusal = next((r.refusal for r in recordings if r.refusal), "") or rt.replay
            if linking is not None and linking.why:
                refusal = linking.why
            why = f"a replay pays from {refusal.min_launches} on" if isinstance(refusal, RecordableQueues) else refusal
            parts.append(f"enqueued one by one: {why}")
        if rt.flush_every:
            parts.append(f"flushed every {rt.flush_every}")
        return "; ".join(parts)
