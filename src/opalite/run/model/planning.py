"""From an imported graph to a Program: passes, what tuning found, emission."""

from __future__ import annotations

import time
from dataclasses import replace

from ...ir.graph import Graph
from ...ir.precision import PrecisionPolicy
from ...knobs import LEVELS
from ...passes.pipeline import optimise, place
from ...passes.rewrite import Context
from ...place.options import Measured
from ...place.precision import set_precision
from ...plan.emit import emit
from ...plan.program import Program
from ...tune.files import has_tuning
from ..execute.trace import Timing
from .compiler import Compiler
from .limits import check_sizes


def plan_graph(compiler: Compiler, graph: Graph, timing: Timing, policy: PrecisionPolicy) -> Program:
    """The Program of `graph`, which is consumed, for the runtime and options of `compiler`, nodes as `policy` says."""
    started = time.perf_counter()
    ctx = Context()
    optimise(graph, ctx, compiler.rt.info, policy)
    set_precision(graph, policy, compiler.rt.info)
    check_sizes(graph, compiler.rt.info)
    timing.import_s += time.perf_counter() - started
    started = time.perf_counter()
    level = compiler.options.tune

    def lay_out(graph: Graph, measured: Measured | None) -> None:
        place(
            graph,
            compiler.rt.info,
            memory=compiler.memory(measured is not None or LEVELS.index(level) >= LEVELS.index("wide")),
            strict=compiler.options.strict,
            measured=measured,
            ctx=replace(ctx, applied=dict(ctx.applied)),
        )

    if level == "none" and not has_tuning(compiler.rt.info):
        lay_out(graph, None)
        program = emit(graph, compiler.rt.info)
        timing.import_s += time.perf_counter() - started
        return program
    from .tuning import TunedPlanner

    planner = TunedPlanner(
        compiler.rt,
        compiler.options.memory,
        lay_out,
        compiler.host_runner(),
        compiler.watch,
        compiler.tunings,
    )
    if level != "none" and (compiler.resumes or not planner.is_tuned(graph, level)):
        program = planner.plan_searched(graph, level)
        timing.tune_s += time.perf_counter() - started
        return program
    program, note = planner.plan_known(graph)
    if note and note not in compiler.notes:
        compiler.notes.append(note)
    timing.import_s += time.perf_counter() - started
    return program
