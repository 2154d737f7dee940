"""Functions that plan a graph for a session: for generic programs, for the sizes at hand, with weights loaded late.

Weights are loaded into host memory after compilation and before device allocation, except those that the device has.
When a new plan replaces an old one, shared weights stay referenced while the old plan frees the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ....cl.memory.shared_weights import SharedWeight
from ....cl.programs.background_throttle import background_planning
from ....cl.programs.build_parallelism import parallel_map
from ....cl.programs.program_cache import Spec
from ....cl.runtime import Runtime
from ....errors import BuildError, OpaliteError
from ....ir.constants.lazy_array import LazyArray, largest
from ....ir.device.device_info import DeviceInfo
from ....ir.dtype import DType
from ....ir.graph import Graph
from ....ir.precision import Precision, PrecisionPolicy
from ....plan.program import LaunchStep, Program
from .respecialize_policy import Sizes

if TYPE_CHECKING:
    from ....plan.planner import Planned, PlanOptions
    from ....plan.template.program_template import Template

_log = logging.getLogger(__name__)

OnBuilt: TypeAlias = "Callable[[Program | Template, tuple[str, ...]], None]"
"""Called with a program, or its template, and with notes on it."""

HOST_WORK = 4e8
"""Operations and bytes that host operators, in NumPy, process in the time that compiling a program takes."""


def plan_generic(graph: Graph, options: PlanOptions, device: DeviceInfo) -> Planned:
    """The generic Program of `graph`, which is consumed.

    The host computes nodes without a generic kernel, unless that is expected to take longer than compiling optimized
    kernels.
    """
    from ....plan.planner import Knowledge, lay_out, prepare

    prepared, knowledge = prepare(graph, options, device), Knowledge(device)
    planned = lay_out(prepared.copy(), replace(options, builds=options.strict), knowledge)
    return planned if planned.host_work <= HOST_WORK else lay_out(prepared, options, knowledge)


def plan_or_none(plan: Callable[[], Planned], graph: Graph) -> Planned | None:
    """The result of `plan`, which plans `graph` with generic programs; None if there is no such plan."""
    try:
        return plan()
    except OpaliteError as e:
        _log.info("graph '%s' has no generic plan: %s", graph.name, e)
        return None


def plan_for_sizes(plan: Callable[[Graph], Planned], graph: Graph, sizes: Sizes, alone: bool = False) -> Planned:
    """The result of `plan` for `graph`, with the program for `sizes`. alone: for these sizes and no others."""
    if graph.trace is None:
        return plan(graph.copy())
    if not alone:
        planned = plan(graph.copy())
        if planned.template is None or sizes == planned.template.sizes:
            return planned
        with background_planning():
            program = planned.template.at(sizes)
        if program is not None:
            return replace(planned, program=program)
    from ....importer.walk.shape_dependent_inputs import graph_at

    return plan(graph_at(graph, sizes))


def constant_bytes(graph: Graph) -> int:
    """Bytes of the constants that nodes of `graph` read."""
    constants = {v for n in graph.nodes for v in n.inputs if v is not None and v.lazy_data is not None}
    return sum(v.lazy_data.nbytes for v in constants if v.lazy_data is not None)


def compute_largest(graph: Graph, policy: PrecisionPolicy) -> None:
    """Compute the largest value of large constants, in parallel. Planning in half precision reads them."""
    if policy.precision in (Precision.FP32, Precision.WIDE):
        return
    inputs = {v for n in graph.nodes for v in n.inputs if v is not None and v.quantized is None}
    large = {v.lazy_data for v in inputs if v.dtype is DType.FLOAT32 and isinstance(v.lazy_data, LazyArray)}
    parallel_map(lambda held: held.cached_query(largest), large)


def stage_weights(
    rt: Runtime, planned: Planned, notes: tuple[str, ...], before: Callable[[], None] | None, on_built: OnBuilt | None
) -> Callable[[Program], None]:
    """The `on_built` of an Executable of `planned`, which references shared weights as long as it lives.

    before: called when all programs have compiled, to free memory. on_built: called with the program and `notes` then,
    with all weights in host memory except those that the device has.
    """
    shared: list[SharedWeight] = []

    def stage(program: Program) -> None:
        shared.extend(filter(None, map(rt.weights.find, planned.weights)))
        if before is not None:
            before()
        planned.load_weights(parallel_map, rt.weights.has)
        if on_built is not None:
            on_built(planned.template or program, notes)

    return stage


def specs(program: Program) -> list[Spec]:
    """The programs of a plan, as they are built."""
    return [s.parts for s in program.sources]


def exclude_failed(rt: Runtime, program: Program, error: BuildError) -> str:
    """Exclude the kernels whose program failed from the device. Returns a sentence on them, '' for none."""
    launches = [s for s in program.steps if isinstance(s, LaunchStep)]
    sources = program.sources
    failed = {s.kernel for s in launches if (sources[s.source].text, sources[s.source].options) == error.program}
    names = sorted(failed - {""})
    if not names:
        return ""
    rt.exclude_kernels(names)
    note = f"{', '.join(names)} left out: the program does not compile on {rt.info.title}"
    _log.warning("%s. %s", note, error)
    return note
