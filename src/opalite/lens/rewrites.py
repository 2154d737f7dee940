"""Rewrites of a capture: the passes are applied once more to the imported graphs, with a log of each patch."""

from __future__ import annotations

from ..importer.walk.shape_dependent_inputs import graph_at
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph
from ..passes.pipeline import place
from ..passes.rewrite_driver import Rewrite
from ..plan.planner import PlanOptions, prepare
from ..run.model.background.plan_graph import compute_largest
from ..run.report.run_capture import Part


def graph_with_sizes(part: Part) -> Graph | None:
    """The imported graph of a part with plain sizes; None for a bundle's."""
    if part.graph is None or part.graph.trace is None or not part.sizes:
        return part.graph
    return graph_at(part.graph, part.sizes)


def rewrites_of(graph: Graph, options: PlanOptions, device: DeviceInfo) -> list[Rewrite]:
    """Every rewrite of the planning of `graph`, which stays as it is, in order."""
    log: list[Rewrite] = []
    copy = graph.copy()
    compute_largest(copy, options.policy)
    prepared = prepare(copy, options, device, log)
    place(
        prepared.graph,
        device,
        memory=options.held_in(device),
        ctx=prepared.context,
        tier=options.tier,
        builds=options.builds,
    )
    return log
