"""Executable: a Program made ready on a device - built, its memory allocated, weights uploaded, every argument set.

After that a run uploads inputs, enqueues prepared launches and downloads outputs: it builds no program, allocates no
device memory and sets no kernel argument. Which way it goes is a Strategy's business, and chosen here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ...cl.forks import keep_in_children
from ...cl.launch import LocalBytes, PreparedLaunch, Recording
from ...cl.replay import Replay
from ...cl.runtime import Runtime
from ...cl.tensor import DeviceTensor
from ...plan.program import LaunchStep, LocalArg, Program, ScalarArg, SlotArg, StepArg
from ...pocl.loop.host_loop import HostLoop
from . import loop_builder
from .draws import Draws
from .exchange import Exchange, Target
from .host_steps import HostRunner, HostSteps
from .loop import Loop
from .phases import Prepared, Recorder
from .progress import build_progress
from .queue import Profiled, Queue
from .repeat import Repeat, repeat_of
from .replay import ReplayStrategy
from .slot_memory import allocate_slots
from .strategy import Strategy
from .trace import RunTrace

Array = np.ndarray[Any, Any]
_NOTHING_KEPT: Mapping[int, DeviceTensor] = {}


class Executable:
    """A Program on a Runtime. Not thread-safe: the session holds its lock while running one.

    launches: by number of their step. build_s: seconds that all this took.
    """

    def __init__(
        self,
        rt: Runtime,
        program: Program,
        host_runner: HostRunner | None = None,
        *,
        is_trial: bool = False,
        on_built: Callable[[Program], None] | None = None,
    ) -> None:
        """is_trial: it is made to be measured or compared: launches stay apart, and no bar shows that it is built.

        on_built: told of the program when all of it has compiled, and before its weights are taken away.
        """
        keep_in_children(self)
        self.rt = rt
        self.program = program
        started = time.perf_counter()
        with nullcontext() if is_trial else build_progress() as tell:
            built = rt.build_all([(s.text, s.options, s.name) for s in program.sources], tell)
        if on_built is not None:
            on_built(program)
        self.memory = allocate_slots(rt, program)
        self.launches: dict[int, PreparedLaunch] = {
            i: rt.prepare(built[s.source], s.entry, [self._arg(a) for a in s.args], s.grid, s.group, s.node)
            for i, s in enumerate(program.steps)
            if isinstance(s, LaunchStep)
        }
        for i, launch in self.launches.items():
            if program.steps[i].open_group:  # type: ignore[union-attr]
                launch.fit_group(rt.device)
        self.exchange = Exchange(rt, program, self.memory.crossings, self.launches)
        self._prepared = Prepared(rt, program, self.exchange, self.launches, HostSteps(host_runner))
        self._draws = Draws(program, self.launches)
        self._is_random = bool(self._draws)
        self.plain: Queue = ReplayStrategy(self._prepared) if isinstance(rt.replay, Replay) else Queue(self._prepared)
        self.last: Strategy = self.plain  # of the last run
        self._loop: Loop | None = None  # once it is built
        self._repeat: Repeat | None = None  # of that loop
        may_join = not is_trial and not self._is_random  # a step loop keeps the arguments that it was made with
        self._loop_builder = loop_builder.LoopBuilder(
            rt, program if may_join else Program(program.name), self.memory.objects
        )
        self._runs = 0
        self._blank: list[Any] = [None] * program.host_slots
        for number, array in program.host_consts.items():
            self._blank[number] = array
        self._inputs = [p.host for p in program.inputs]
        self._outputs = [p.host for p in program.outputs]
        rt.finish()
        self.build_s = time.perf_counter() - started
        program.weights = {}  # the device holds them now

    def _arg(self, a: StepArg) -> Any:
        if isinstance(a, SlotArg):
            return self.memory.objects[a.slot]
        if isinstance(a, LocalArg):
            return LocalBytes(a.nbytes)
        assert isinstance(a, ScalarArg)
        return a.value

    def run(
        self,
        feeds: Sequence[Any],
        targets: Mapping[int, Target] | None = None,
        lent: Sequence[int] = (),
        recorder: Recorder | None = None,
    ) -> tuple[list[Any], RunTrace]:
        """Outputs in order for `feeds`, and what the run did.

        feeds: arrays or DeviceTensors of exactly the ports' dtypes and shapes. targets: outputs, by number, that should
        stay on the device; where a launch writes one, the DeviceTensor stands for the array. lent: outputs that nobody
        reads after the next run, which stay where they are likewise. recorder: told of the times of every launch.
        """
        exchange = self.exchange
        if self._is_random:
            self._draws.begin(exchange.recordings)
        hosts = self._blank.copy()
        is_plain = not targets and not lent and recorder is None
        for number, value in zip(self._inputs, feeds, strict=True):
            hosts[number] = value
            if type(value) is not np.ndarray:
                is_plain = False
        kept: Mapping[int, DeviceTensor] = _NOTHING_KEPT
        if not is_plain or exchange.is_bound:
            kept = self._bind(targets or {}, feeds, lent)
        strategy = self.last = self._choose(hosts, is_plain, recorder)
        trace = strategy.run(hosts, kept)
        return list(map(hosts.__getitem__, self._outputs)), trace

    def _bind(
        self, targets: Mapping[int, Target], feeds: Sequence[Any], lent: Sequence[int]
    ) -> Mapping[int, DeviceTensor]:
        """Outputs by slot on the host that stay on the device, bound."""
        kept = self.exchange.keep(targets, feeds)
        for number in lent:
            port = self.program.outputs[number]
            if port.host not in kept and (tensor := self.exchange.lend(port)) is not None:
                kept[port.host] = tensor
        return kept

    def _choose(self, hosts: Sequence[Any], is_plain: bool, recorder: Recorder | None) -> Strategy:
        """How this run goes; after `_bind`. is_plain: arrays come and arrays are wanted.

        A profile takes launches one by one. Programs that have run often are joined in the background; the loop is
        taken where inputs and outputs lie as when it was made, and repeated without a look at phases if all are arrays.
        Otherwise launches are replayed where the device does that, and enqueued elsewhere.
        """
        if recorder is not None:
            return Profiled(self._prepared, self.plain.phases, recorder)
        if self._loop is None:
            self._runs += 1
            if self._loop_builder.is_over or self._runs < loop_builder.WORTH_RUNS or not self._join():
                return self.plain
        assert self._loop is not None
        if is_plain and self._repeat is not None:
            return self._repeat
        return self._loop if self.exchange.is_held(hosts) else self.plain

    def _join(self) -> bool:
        """Take up the loop if it is built; whether it is."""
        loops = self._loop_builder.poll(self.exchange.hold)
        if loops is None:
            return False
        self._loop = Loop(self._prepared, loops)
        self._repeat = repeat_of(self._prepared, self._loop)
        return True

    @property
    def queueing(self) -> str:
        """How launches reach the device, in a sentence: one by one and why, or recorded and replayed."""
        usual = self._loop or self.plain
        recordings = [p for p in usual.phases if isinstance(p, Recording)]
        replayed = [r for r in recordings if r.replays]
        parts = [
            f"launches: {self._prepared.launch_count}" + (f" in {len(recordings)} parts" if len(recordings) > 1 else "")
        ]
        if self._loop is not None:
            parts.append(self._loop.description)
        if replayed:
            count = "one command buffer" if len(replayed) == 1 else f"{len(replayed)} command buffers"
            parts.append(f"replayed as {count} from the second run on ({self.rt.replay})")
        else:
            refusal = next((r.refusal for r in recordings if r.refusal), "") or self.rt.replay
            why = "a replay pays from two on" if isinstance(refusal, Replay) else refusal
            parts.append(f"enqueued one by one: {why}")
        if self.rt.flush_every:
            parts.append(f"flushed every {self.rt.flush_every}")
        return "; ".join(parts)

    @property
    def host_loop(self) -> HostLoop | None:
        """The loop of all launches that the host walks, once there is one."""
        return None if self._loop is None else self._loop.host_loop

    def inputs_on_device(self, feeds: Sequence[Any]) -> list[DeviceTensor | None]:
        """The arrays among `feeds` as they lie on the device after a run, until the next; None for what does not."""
        lend = self.exchange.lend_input
        return [
            lend(port) if isinstance(array, np.ndarray) else None
            for port, array in zip(self.program.inputs, feeds, strict=True)
        ]

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for what is built in the background; whether it is done."""
        return self._loop_builder.wait(timeout)

    def replay(self) -> None:
        """Repeat the launches of the last run on the inputs that are on the device, without transfers, and wait.

        OpaliteError where a host step stands between launches.
        """
        self.last.replay()
