"""Compiler: from one imported graph to an Executable, with the session's options; remembers what it compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..cl.runtime import Runtime
from ..errors import DeviceError, InputError, OpaliteError
from ..ir.dtype import DType
from ..ir.graph import Graph
from ..ir.place import Memory
from ..knobs import LEVELS, MEMORIES, PRECISIONS
from ..passes.candidates import Measured
from ..passes.pipeline import optimise, place
from ..passes.rewrite import Context
from ..plan.emit import emit
from ..plan.program import HostStep, Program
from ..plan.report import NodeReport
from ..tune.files import has_tuning
from .executor import Executable, HostRunner, Recorder
from .explain import Explanation
from .limits import check_sizes
from .timing import Timing

if TYPE_CHECKING:
    from ..tune.report import GraphTuning
    from ..tune.tuner import Progress
    from .tuning import TunedPlanner


@dataclass(frozen=True)
class CompileOptions:
    """What a session was asked for. InputError for words that are not among the choices."""

    precision: str = "auto"
    memory: str = "auto"
    tune: str = "none"
    strict: bool = False

    def __post_init__(self) -> None:
        for what, value, choices in (
            ("precision", self.precision, PRECISIONS),
            ("memory", self.memory, MEMORIES),
            ("tune", self.tune, LEVELS),
        ):
            if value not in choices:
                raise InputError(f"{what} {value!r} is not known; choose {', '.join(choices)}")


class Compiler:
    """Compiles graphs for one runtime. `traced` lists what the last run used, in order; `ran` its executables."""

    def __init__(self, rt: Runtime, options: CompileOptions) -> None:
        self.rt = rt
        self.options = options
        self.traced: list[Program | NodeReport] = []
        self.ran: list[Executable] = []
        self.notes: list[str] = []
        self.recorder: Recorder | None = None  # set while the session profiles
        self.resumes = False  # whether a graph that was tuned already is searched for what its budget left out
        self.watch: Callable[[Progress], None] | None = None  # told of the tuner's work
        self.tunings: list[GraphTuning] = []  # one for each graph tuned

    def compile(self, graph: Graph, timing: Timing) -> Executable:
        """Optimise, place, plan and build `graph`, which stays as it is: whoever is interrupted here may try again."""
        program = self.plan(graph.copy(), timing)
        executable = Executable(self.rt, program, self.host_runner())
        timing.build_s += executable.build_s
        return executable

    def plan(self, graph: Graph, timing: Timing) -> Program:
        """The Program of `graph`, which is consumed."""
        started = time.perf_counter()
        ctx = Context()
        optimise(graph, ctx)
        check_sizes(graph, self.rt.info, self.storage())
        timing.import_s += time.perf_counter() - started
        started = time.perf_counter()
        level = self.options.tune
        planner = self._planner(ctx) if level != "none" or has_tuning(self.rt.info) else None
        if planner is None:
            self._lay_out(graph, ctx, None)
            program = emit(graph, self.rt.info)
        elif level != "none" and (self.resumes or not planner.is_tuned(graph, level)):
            program = planner.plan_searched(graph, level)
            timing.tune_s += time.perf_counter() - started
            return program
        else:
            program, note = planner.plan_known(graph)
            if note and note not in self.notes:
                self.notes.append(note)
        timing.import_s += time.perf_counter() - started
        return program

    def _lay_out(self, graph: Graph, ctx: Context, measured: Measured | None) -> None:
        own = replace(ctx, applied=dict(ctx.applied))
        place(
            graph,
            self.rt.info,
            precision=self.storage(),
            memory=self.memory(),
            strict=self.options.strict,
            measured=measured,
            ctx=own,
        )

    def _planner(self, ctx: Context) -> TunedPlanner:
        from .tuning import TunedPlanner

        return TunedPlanner(
            self.rt,
            self.storage(),
            self.options.memory,
            lambda graph, measured: self._lay_out(graph, ctx, measured),
            self.host_runner(),
            self.watch,
            self.tunings,
        )

    @staticmethod
    def host_runner() -> HostRunner:
        """What runs ONNX operators on the host: imports onnx when it is first called."""

        def run(step: HostStep, inputs: Sequence[Any]) -> Sequence[Any]:
            try:
                from ..importer.hostop import run_host
            except ImportError as e:
                raise OpaliteError(f"{step.node} runs on the host, for which the onnx package must be installed") from e
            return run_host(step.op_type, step.domain, step.opset, step.proto, inputs)

        return run

    def storage(self) -> DType | None:
        """Storage precision of float32 values; None keeps float32."""
        wanted = self.options.precision
        if wanted == "fp32" or (wanted == "auto" and not (self.rt.info.fp16 and not self.rt.info.is_cpu)):
            return None
        if wanted == "fp16_fast" and not self.rt.info.fp16:
            raise DeviceError(
                f"precision fp16_fast needs half arithmetic, which {self.rt.info.name} lacks; "
                f"use fp16 (half storage, float sums) or fp32"
            )
        return DType.FLOAT16

    def memory(self) -> Memory | None:
        """What tensors are held in, as `passes.pipeline.place` takes it; a device without images has buffers only."""
        info = self.rt.info
        if self.options.memory == "image" and info.image_support:
            return Memory.IMAGE2D
        if self.options.memory == "auto" and info.prefers_images:
            return None
        return Memory.BUFFER

    def trace(self, item: Program | NodeReport) -> None:
        """Remember that the present run used a program, or did something on the host between programs."""
        if item not in self.traced:
            self.traced.append(item)

    def forget_trace(self) -> None:
        """Start remembering afresh."""
        self.traced = []
        self.ran = []

    def explain(self) -> Explanation:
        """The placement of everything that the last run used."""
        found = Explanation(self.rt.info.name, notes=list(self.notes))
        for item in self.traced:
            if isinstance(item, NodeReport):
                found.nodes.append(item)
            else:
                found.nodes.extend(item.placement)
                found.memory.append(item.memory)
        return found
