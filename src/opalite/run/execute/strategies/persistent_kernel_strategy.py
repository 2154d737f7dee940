"""PersistentKernelStrategy: launches linked into persistent kernels, if they give equal results and are faster.

The groups of a persistent kernel stay from the first step to the last. A group that waits for another one in vain gives
up after a moment; the run is then repeated launch by launch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .... import knobs
from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....cl.programs.background_throttle import background_planning
from ....cl.queue.launch_sequence import LaunchSequence
from ....cl.runtime import Runtime
from ....errors import DeviceError, OpaliteError
from ....plan.template.dynamic_parameters import Values
from ..ab_timing import PairedTimes
from ..compile_queue import Job, compile_queue
from ..run_trace import RunTrace
from ..shape_instance import ShapeInstance
from .queue_strategy import Queue
from .strategy import Strategy

if TYPE_CHECKING:
    from .linked_ptx_kernels import LinkedKernels

_log = logging.getLogger(__name__)

WORTH_RUNS = 20  # of a program, before its launches are linked
TIMED_BEFORE = 3  # of these runs, the last ones are timed
LONG_S = 25e-6  # of a launch: the overhead of 4 us is then not worth the seconds that linking takes
PAIRS = 12  # of runs that are timed, launch by launch and linked in turn
GAIN = 0.97  # of the median time of single launches, which the linked kernels must not exceed


class PersistentKernelStrategy(Queue):
    """A queue with linked kernels in place of most launches. failure: why it must not be used any more."""

    name = "persistent"

    def __init__(self, instance: ShapeInstance, kernels: LinkedKernels) -> None:
        super().__init__(instance, kernels.launches)
        self.kernels = kernels
        self.failure = ""

    def begin(self, values: Values = (), in_flight: int = 0, uploads: InlineUpload | None = None) -> bool:
        """See Queue.begin."""
        kernels = self.kernels
        if not kernels.bind(self.instance.io.bound):
            return False
        if kernels.table is not None and not kernels.table.write(values, in_flight, uploads):
            return False
        return super().begin(values)  # of launches that are not linked

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run."""
        rt, plain = self.instance.rt, self.instance.plain
        assert plain is not None
        was_lost = rt.lost
        try:
            trace = super().run(host_values, on_device, values, meanwhile)
        except DeviceError as e:
            if not was_lost and rt.check_lost(e):
                self.kernels.record_failure(f"a run of it ended the context ({rt.lost})")
            raise
        return plain.run(host_values, on_device, values) if self._gives_up() else trace

    def _enqueue(self, recording: LaunchSequence) -> bool:
        super()._enqueue(recording)
        return False

    def _before_downloads(self) -> None:
        # Together with the downloads this costs next to nothing; directly after the launches, 13 to 22 us on an H200.
        # A replay returns no results and does not read the flag, which stays set until the next run.
        self.kernels.enqueue_flag_read()

    def finish(self) -> bool:
        """See Queue.finish."""
        self.kernels.enqueue_flag_read()
        return super().finish() and not self._gives_up()

    def _gives_up(self) -> bool:
        if not self.kernels.has_failed():
            return False
        self.failure = "the device did not run all groups of the linked kernel at once"
        _log.warning("launches are enqueued one by one from now on: %s", self.failure)
        return True


class PersistentKernelSelector:
    """Selects linked kernels or single launches for one program and shape. Called by one thread at a time.

    They are linked in the background once the program has run often, then tried for equal results, timed,
    and chosen or not. why: the reason for single launches, once it is known; '' otherwise.
    """

    def __init__(self, instance: ShapeInstance, link: Callable[[], LinkedKernels]) -> None:
        """link: makes the kernels, in a background job."""
        self._instance, self._link = instance, link
        self._runs = 0
        self._job: Job | None = None
        self._kernels: LinkedKernels | None = None
        self._persistent: PersistentKernelStrategy | None = None
        self._is_tried = False
        self._before: list[float] = []  # seconds of runs before there are kernels
        self._times = PairedTimes()  # of plain runs and of linked ones
        self._is_chosen = False
        self.why = ""

    def choose(self, plain: Queue, host_values: Sequence[Any], on_device: Mapping[int, DeviceTensor]) -> Strategy:
        """The strategy of a run with these inputs, and outputs on the device. plain: serves every run."""
        if self._is_chosen and self._persistent is not None:
            if not self._persistent.failure:
                return self._persistent
            self._give_up(self._persistent.failure)
        if self.is_decided:
            return plain
        if not self._is_made():
            is_last = WORTH_RUNS - TIMED_BEFORE <= self._runs < WORTH_RUNS
            return _Timed(self, plain, self._before) if is_last else plain
        assert self._persistent is not None
        if not self._is_tried:
            fed = {id(v.staging) for v in host_values if isinstance(v, DeviceTensor)}
            repeats = all(id(tensor.staging) not in fed for tensor in on_device.values())
            return _Trial(self, plain, self._persistent) if repeats else plain
        times = self._times
        if times.is_b_next:
            return _Timed(self, self._persistent, times.b)
        return _Timed(self, plain, times.a)

    @property
    def is_decided(self) -> bool:
        """Whether the strategy of later runs is known."""
        return self._is_chosen or bool(self.why)

    def best(self, plain: Queue) -> Queue:
        """The strategy of runs, as far as it is known. plain: serves every run."""
        return self._persistent if self._is_chosen and self._persistent is not None else plain

    @property
    def description(self) -> str:
        """A phrase on the linked kernels; '' if there are none."""
        if not self._is_chosen or self._kernels is None:
            return ""
        kernels = self._kernels.kernels
        into = "one kernel" if kernels == 1 else f"{kernels} kernels"
        plain_s, linked_s = self._times.medians
        return (
            f"{self._kernels.steps} linked into {into} whose groups stay for all steps "
            f"(a run takes {linked_s * 1e3:.3f} ms, {plain_s * 1e3:.3f} launch by launch)"
        )

    @property
    def jobs(self) -> list[Job]:
        """The background job that links the kernels, once it was submitted."""
        return [] if self._job is None else [self._job]

    def _is_made(self) -> bool:
        """Count a run, and submit the job that links. Returns whether the kernels are ready."""
        if self._persistent is not None:
            return True
        self._runs += 1
        if self._runs < WORTH_RUNS:
            return False
        launches = len(self._instance.launch_steps)
        # The least: other load makes runs longer for a moment, and the decision is final.
        if self._before and min(self._before) > LONG_S * launches:
            taken = min(self._before) * 1e3
            self.why = f"{launches} launches take {taken:.3f} ms, which linking would not shorten"
            return False
        if self._job is None:
            self._job = Job(self._make, self._refuse)
            compile_queue(self._instance.rt).submit(self._job, self._job)
        if not self._job.is_over or self._kernels is None:
            return False
        self._persistent = PersistentKernelStrategy(self._instance, self._kernels)
        return True

    def _make(self) -> None:
        """Link the kernels. The work of the background job."""
        with background_planning():
            self._kernels = self._link()

    def _refuse(self, error: Exception) -> None:
        """Record why the kernels cannot be linked."""
        self.why = str(error)
        _log.info("launches of %s are not linked: %s", self._instance.program.name or "a model", error)

    def record_trial(self, reason: str) -> None:
        """Record a run that went both ways. reason: why the linked kernels are wrong; '' if they are not."""
        self._is_tried = True
        if reason:
            self._give_up(reason)

    def record_time(self) -> None:
        """Called after a timed run. Decides once enough runs are timed."""
        if self._persistent is None:
            return
        if self._persistent.failure:
            self._give_up(self._persistent.failure)
        elif self._times.pairs >= PAIRS:
            plain_s, linked_s = self._times.medians
            if linked_s <= GAIN * plain_s:
                self._is_chosen = True
            else:
                self._give_up(f"linked, a run takes {linked_s * 1e3:.3f} ms, and {plain_s * 1e3:.3f} launch by launch")

    def _give_up(self, why: str) -> None:
        self.why = why
        self._is_chosen = False
        self._persistent = self._kernels = None


class _Trial:
    """A run by single launches, whose results are returned, and one by linked kernels, which must give the same."""

    name = "queue"

    def __init__(self, runs: PersistentKernelSelector, plain: Queue, persistent: PersistentKernelStrategy) -> None:
        self._runs, self._plain, self._persistent = runs, plain, persistent

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run."""
        again = list(host_values)
        persistent, kernels, instance = self._persistent, self._persistent.kernels, self._plain.instance
        if not persistent.begin(values):  # for this run, linked kernels are not possible
            return self._plain.run(host_values, on_device, values, meanwhile)
        before = kernels.read_state()
        trace = self._plain.run(host_values, on_device, values, meanwhile)
        after = kernels.read_state()
        outputs = [p.host for p in instance.program.outputs]
        wanted = [_bytes(host_values[i]) for i in outputs]
        why = ""
        try:
            kernels.restore_state(before)
            kernels.poison_outputs()
            persistent.run(again, on_device, values)
        except OpaliteError as e:
            if instance.rt.lost:
                raise
            why = f"the linked kernel does not run: {e}"
        else:
            now = [_bytes(again[i]) for i in outputs]
            lasts = (a.tobytes() == b.tobytes() for a, b in zip(after, kernels.read_state(), strict=True))
            if now != wanted or not all(lasts):
                why = "linked kernels gave other bits than single launches"
        if why and on_device:  # outputs on the device are those of the linked kernels
            kernels.restore_state(before)
            self._plain.run(host_values, on_device, values)
        elif why:
            kernels.restore_state(after)
        self._runs.record_trial(self._persistent.failure or why)
        return trace

    def replay(self) -> None:
        """See Strategy.replay."""
        self._plain.replay()


def _bytes(output: Any) -> bytes:
    """The content of an array, or of a tensor that is valid until the next run."""
    array = output.numpy() if isinstance(output, DeviceTensor) else output
    return bytes(array.tobytes())


class _Timed:
    """A run whose seconds are recorded."""

    def __init__(self, runs: PersistentKernelSelector, strategy: Queue, times: list[float]) -> None:
        self._runs, self._strategy, self._times = runs, strategy, times
        self.name = strategy.name

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run."""
        started = time.perf_counter()
        trace = self._strategy.run(host_values, on_device, values, meanwhile)
        self._times.append(time.perf_counter() - started)
        self._runs.record_time()
        return trace

    def replay(self) -> None:
        """See Strategy.replay."""
        self._strategy.replay()


def may_link(rt: Runtime) -> bool:
    """Whether launches may be linked on this device: a tested device, and not turned off by a knob."""
    return knobs.allows_strategy("persistent") and rt.info.links_launches
