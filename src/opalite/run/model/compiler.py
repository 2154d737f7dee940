"""Compiler: from one imported graph to an Executable, with the session's options; remembers what it compiled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ...cl.runtime import Runtime
from ...errors import BuildError, DeviceError, OpaliteError
from ...ir.graph import Graph
from ...ir.place import Memory
from ...ir.precision import Precision, PrecisionPolicy
from ...plan.program import HostStep, LaunchStep, Program
from ...plan.report import NodeReport
from ..execute.executable import Executable, HostRunner, Recorder
from ..execute.slot_memory import arena_regions
from ..execute.trace import Timing
from ..report.explain import Explanation
from .options import CompileOptions

if TYPE_CHECKING:
    from ...tune.report import GraphTuning
    from ...tune.tuner import Progress


_log = logging.getLogger(__name__)

MOST_LEFT_OUT = 3
"""Kernels whose programs may fail while one graph is compiled: where more do, the driver builds nothing at all."""


class Compiler:
    """Compiles graphs for one runtime. `traced` lists what the last run used, in order; `ran` its executables."""

    def __init__(self, rt: Runtime, options: CompileOptions, is_trial: bool = False) -> None:
        """is_trial: what it runs is only to be compared, so that overflow is no news."""
        self.rt = rt
        self.options = options
        self.is_trial = is_trial
        self.traced: list[Program | NodeReport] = []
        self._seen: set[Any] = set()  # what tells the traced apart
        self.ran: list[Executable] = []
        self.notes: list[str] = []
        self.overflowed = False  # whether something runs in float32 because half could not hold it
        self.recorder: Recorder | None = None  # set while the session profiles
        self.check: Callable[[], None] | None = None  # asked between segments whether the run is called off
        self.resumes = False  # whether a graph that was tuned already is searched for what its budget left out
        self.watch: Callable[[Progress], None] | None = None  # told of the tuner's work
        self.tunings: list[GraphTuning] = []  # one for each graph tuned

    def compile(
        self,
        graph: Graph,
        timing: Timing,
        tell: Callable[[Program], None] | None = None,
        policy: PrecisionPolicy | None = None,
    ) -> Executable:
        """Optimise, place, plan and build `graph`, which stays as it is: whoever is interrupted here may try again.

        `tell` is given the program before it is made ready, which takes its weights away. policy: None takes the
        session's. Where a kernel's program does not compile, another kernel takes its place, if there is one.
        """
        policy = policy or self.policy()
        failed: BuildError | None = None
        for left in range(MOST_LEFT_OUT, -1, -1):
            try:
                program = self.plan(graph.copy(), timing, policy)
            except OpaliteError:
                if failed is not None:  # nothing else can take the kernel's place
                    raise failed from None
                raise
            try:
                executable = Executable(self.rt, program, self.host_runner(), on_built=tell)
                break
            except BuildError as e:
                if not left or not self._leave_out(program, e):
                    raise
                failed = e
        executable.may_overflow = program.stores_halves
        timing.build_s += executable.build_s
        return executable

    def _leave_out(self, program: Program, error: BuildError) -> bool:
        """Have the device do without the kernels whose program failed, and say so; whether there are any."""
        launches = [s for s in program.steps if isinstance(s, LaunchStep)]
        sources = program.sources
        failed = {s.kernel for s in launches if (sources[s.source].text, sources[s.source].options) == error.program}
        names = sorted(failed - {""})
        if names:
            self.rt.leave_out(names)
            note = f"{', '.join(names)} left out: the program does not compile on {self.rt.info.name}"
            _log.warning("%s. %s", note, error)
            self.notes.append(note)
        return bool(names)

    def plan(self, graph: Graph, timing: Timing, policy: PrecisionPolicy | None = None) -> Program:
        """The Program of `graph`, which is consumed."""
        from .planning import plan_graph  # passes and kernels: a compiled model needs neither

        return plan_graph(self, graph, timing, policy or self.policy())

    @staticmethod
    def host_runner() -> HostRunner:
        """What runs ONNX operators on the host: imports onnx when it is first called."""

        @cache
        def find(node: str) -> Callable[..., Sequence[Any]]:
            try:
                from ...importer.host.reference import run_host
            except ImportError as e:
                raise OpaliteError(f"{node} runs on the host, for which the onnx package must be installed") from e
            return run_host

        def run(step: HostStep, inputs: Sequence[Any]) -> Sequence[Any]:
            run_host = find(step.node)
            return run_host(step.op_type, step.domain, step.opset, step.proto, inputs)

        return run

    def beside(self, precision: str | PrecisionPolicy) -> Compiler:
        """Another compiler for a trial by `precision`; the session hears of its tuning all the same."""
        made = Compiler(self.rt, replace(self.options, precision=precision), is_trial=True)
        made.resumes, made.watch, made.tunings = self.resumes, self.watch, self.tunings
        return made

    @contextmanager
    def by(self, precision: str | PrecisionPolicy) -> Iterator[None]:
        """Inside, `precision` holds in place of what the session was asked for."""
        asked = self.options
        self.options = replace(asked, precision=precision)
        try:
            yield
        finally:
            self.options = asked

    def policy(self) -> PrecisionPolicy:
        """The precision of every node; 'auto' is float32 until something else was chosen (run/auto_source.py).

        DeviceError where sums in half are asked for and the device has none.
        """
        wanted, info = self.options.precision, self.rt.info
        if wanted == "auto":
            wanted = "fp32"
        policy = PrecisionPolicy(Precision(wanted)) if isinstance(wanted, str) else wanted
        if policy.precision is Precision.FP16_FAST and not info.half_sums:
            raise DeviceError(
                f"precision fp16_fast needs half arithmetic, which {info.name} lacks; "
                f"use fp16 (half storage, float sums) or fp32"
            )
        return policy

    def memory(self, by_measurement: bool = False) -> Memory | None:
        """What tensors are held in, as `passes.pipeline.place` takes it; a device without images has buffers only.

        by_measurement: whether images are being measured, or may have been.
        """
        info = self.rt.info
        if self.options.memory == "image" and info.image_support:
            return Memory.IMAGE2D
        if self.options.memory == "auto" and info.image_support and (info.prefers_images or by_measurement):
            return None
        return Memory.BUFFER

    def trace(self, item: Program | NodeReport) -> None:
        """Remember that the present run used a program, or did something on the host between programs."""
        key = (item.name, item.op, item.why) if isinstance(item, NodeReport) else id(item)
        if key not in self._seen:
            self._seen.add(key)
            self.traced.append(item)

    def forget_trace(self) -> None:
        """Start remembering afresh."""
        self.traced = []
        self._seen = set()
        self.ran = []

    def take_trace(self, other: Compiler) -> None:
        """Remember what the last run of `other` used in place of one's own."""
        self.traced, self._seen, self.ran = other.traced, other._seen, other.ran
        self.notes.extend(n for n in other.notes if n not in self.notes)

    def explain(self) -> Explanation:
        """The placement of everything that the last run used."""
        found = Explanation(self.rt.info.name, notes=list(self.notes))
        found.queueing = list(dict.fromkeys(executable.queueing for executable in self.ran))
        for item in self.traced:
            if isinstance(item, NodeReport):
                found.nodes.append(item)
            else:
                found.nodes.extend(item.placement)
                found.memory.append(item.memory)
                found.arenas.append(arena_regions(item))
        return found
