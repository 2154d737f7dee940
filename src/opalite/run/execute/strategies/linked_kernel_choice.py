"""LinkedKernelChoice: linked kernels or single launches for one program and shape.

They are linked in the background once the program has run often, then tried for equal results, timed, and chosen or
not. The decision is stored, so that the first run of a later process takes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.programs.background_throttle import background_planning
from ....errors import OpaliteError
from ....plan.template.dynamic_parameters import Values
from ..ab_timing import PairedTimes
from ..compile_queue import Job, compile_queue
from ..loops.loop_iterations import IterationResult, Iterations, LoopCarryPlan
from ..run_trace import RunTrace
from ..shape_instance import ShapeInstance
from .launch_parameter_buffer import LaunchParameterBuffer
from .persistent_kernel_strategy import PersistentKernelStrategy
from .queue_strategy import Queue
from .stored_decision import VALID_RUNS, Decision, decision_key, find_decision, keep_decision
from .strategy import Strategy

if TYPE_CHECKING:
    from .linked_ptx_kernels import LinkedKernels

_log = logging.getLogger(__name__)

WORTH_RUNS = 20  # of a program, before its launches are linked
TIMED_BEFORE = 3  # of these runs, the last ones are timed
LONG_S = 25e-6  # of a launch: the overhead of 4 us is then not worth the seconds that linking takes
PAIRS = 12  # of runs that are timed, launch by launch and linked in turn
GAIN = 0.97  # of the median time of single launches, which the linked kernels must not exceed
_MOST_LINKED = 4  # shapes with linked kernels, each of which the driver compiles for seconds


@dataclass
class LinkedPrograms:
    """Programs and decisions that the linked kernels of an executable share, for all shapes and replicas.

    built: programs by source. assembled: linked programs by text. decisions: by key. linked: shapes that were linked.
    """

    built: Sequence[Any]
    assembled: dict[str, Any] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    linked: int = 0


class LinkedKernelChoice:
    """Chooses linked kernels or single launches for one program and shape. Called by one thread at a time.

    why: the reason for single launches, once it is known; '' otherwise.
    """

    def __init__(self, instance: ShapeInstance, shared: LinkedPrograms, may_link: bool) -> None:
        """may_link: False for a replica, which takes what its original has linked."""
        self._instance, self._shared, self._may_link = instance, shared, may_link
        self._key = ""
        self._runs = 0
        self._job: Job | None = None
        self._stretches: list[Any] = []
        self._kernels: LinkedKernels | None = None
        self._persistent: PersistentKernelStrategy | None = None
        self._is_tried = self._is_chosen = False
        self._before: list[float] = []  # seconds of runs before there are kernels
        self._times = PairedTimes()  # of plain runs and of linked ones
        self._valid_runs = 0  # before a decision of an earlier process is measured again
        self.why = ""

    def choose(self, plain: Queue, host_values: Sequence[Any], on_device: Mapping[int, DeviceTensor]) -> Strategy:
        """The strategy of a run with these inputs, and outputs on the device. plain: serves every run."""
        self._update()
        if self._is_chosen and self._persistent is not None:
            return self._persistent
        if self.is_decided or not self._may_link:
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

    def iterations(self, plain: Queue, plan: LoopCarryPlan) -> tuple[Strategy, Iterations | str]:
        """The strategy and the runner of a loop's iterations, or the reason why each iteration is a run."""
        self._update()
        single = plain.iterations(plan)
        if isinstance(single, str):
            return plain, single
        if not (self.is_decided or not self._may_link):
            if single.iteration_s:
                self._before.append(single.iteration_s)
            if self._is_made():
                assert self._persistent is not None
                linked = self._persistent.iterations(plan)
                assert not isinstance(linked, str)
                return plain, _IterationsBothWays(self, self._times, single, linked)
        best = self.best(plain)
        return best, best.iterations(plan)

    def count(self, iterations: int) -> None:
        """Count iterations of a loop."""
        self._runs += iterations

    def _update(self) -> None:
        """Take a stored decision, and withdraw one that has failed or is old."""
        if not (self.is_decided or (self._key and self._may_link)):
            self._restore()
        if self._valid_runs:
            self._measure_again()
        if self._is_chosen and self._persistent is not None and self._persistent.failure:
            self._give_up(self._persistent.failure)

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

    def _restore(self) -> None:
        """Take the decision of an earlier process, or of the original of a replica."""
        from .linked_stretch import Stretch, memory_layout

        instance, shared = self._instance, self._shared
        if not self._key:
            dynamic = instance.dynamic
            varying = () if dynamic is None else ([*dynamic.scalars], [*dynamic.items])
            layout = memory_layout(instance), instance.rt.info.compute_units, varying
            self._key = decision_key(instance.rt, instance.program, "linked kernels", *layout)
            if self._may_link and (found := find_decision(instance.rt, self._key)) is not None:
                shared.decisions[self._key] = found
        decision = shared.decisions.get(self._key)
        if decision is None:
            return
        self._stretches = [Stretch(**s) for s in decision.get("stretches", ())]
        if any(instance.rt.trials.known_fault(s.text.encode()) != "" for s in self._stretches):
            return  # they are linked and tried again
        self._valid_runs = VALID_RUNS if self._may_link else 0
        self.why = decision.get("why", "")
        if self.why:
            return
        try:
            self._kernels = self._prepare(self._table())
        except OpaliteError as e:
            self._refuse(e)
            return
        self._persistent = PersistentKernelStrategy(instance, self._kernels)
        self._times.a, self._times.b = [decision["plain_s"]], [decision["linked_s"]]
        self._is_tried = self._is_chosen = True

    def _measure_again(self) -> None:
        """Count a run by a decision of an earlier process, and forget the decision after many."""
        self._valid_runs -= 1
        if not self._valid_runs:
            self.why, self._is_chosen, self._times = "", False, PairedTimes()

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
        """Link the kernels. The work of the background job, concurrently with runs."""
        from .link_stretches import LinkError, StretchLinker

        shared = self._shared
        with background_planning():
            if self._instance.dynamic is None:
                if shared.linked == _MOST_LINKED:
                    raise LinkError(f"launches of {_MOST_LINKED} other shapes are linked")
                shared.linked += 1
            table = self._table()
            self._stretches = StretchLinker(self._instance, table).link(shared.built)
            self._kernels = self._prepare(table)

    def _table(self) -> LaunchParameterBuffer | None:
        instance = self._instance
        return None if instance.dynamic is None else LaunchParameterBuffer(instance.rt, instance.dynamic)

    def _prepare(self, table: LaunchParameterBuffer | None) -> LinkedKernels:
        from .linked_ptx_kernels import LinkedKernels  # PTX, which most devices have none of

        return LinkedKernels(self._instance, self._stretches, table, self._shared.assembled)

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
                stretches = [asdict(s) for s in self._stretches]
                self._keep({"stretches": stretches, "plain_s": plain_s, "linked_s": linked_s})
            else:
                self._give_up(f"linked, a run takes {linked_s * 1e3:.3f} ms, and {plain_s * 1e3:.3f} launch by launch")
                self._keep({"why": self.why})

    def _keep(self, decision: Decision) -> None:
        self._shared.decisions[self._key] = decision
        keep_decision(self._instance.rt, self._key, decision)

    def _give_up(self, why: str) -> None:
        self.why = why
        self._is_chosen = False
        self._persistent = self._kernels = None


class _Trial:
    """A run by single launches, whose results are returned, and one by linked kernels, which must give the same."""

    name = "queue"

    def __init__(self, runs: LinkedKernelChoice, plain: Queue, persistent: PersistentKernelStrategy) -> None:
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

    def __init__(self, runs: LinkedKernelChoice, strategy: Queue, times: list[float]) -> None:
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


class _IterationsBothWays:
    """Iterations by single launches, whose results are returned, and by linked kernels, which must give the same."""

    def __init__(self, choice: LinkedKernelChoice, times: PairedTimes, single: Iterations, linked: Iterations) -> None:
        self._choice, self._times, self._single, self._linked = choice, times, single, linked
        self.how, self.iteration_s = single.how, single.iteration_s

    def run(
        self, feeds: Sequence[Any], first: int, most: int, scanned: Sequence[Any] = ()
    ) -> tuple[IterationResult, RunTrace]:
        """See Iterations.run."""
        result, trace = self._single.run(feeds, first, most, scanned)
        found, _ = self._linked.run(feeds, first, most, scanned)
        same = (found.made, found.continues) == (result.made, result.continues) and all(
            a.tobytes() == b.tobytes()
            for a, b in zip((*found.states, *found.rows), (*result.states, *result.rows), strict=True)
        )
        self._choice.record_trial("" if same else "linked kernels gave other bits than single launches")
        self._times.a.append(self._single.iteration_s)
        self._times.b.append(self._linked.iteration_s)
        self._choice.record_time()
        return result, trace
