"""Null mode: a model planned for devices that are not here, its rewritten graphs computed by NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from opalite.importer import ImportRun, ModelImporter, check_feeds, load_model
from opalite.importer.walk.segments import Segment
from opalite.ir import DeviceInfo, check_graph
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.graph import Graph
from opalite.ir.place import Memory
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.layout.assign_precision import set_precision
from opalite.ops.elementwise import run_reference
from opalite.passes.pipeline import optimise, place
from opalite.passes.rewrite_driver import Context
from opalite.plan.emit_program import emit
from opalite.plan.memory.memory_limits import check_sizes
from opalite.plan.program import LaunchStep, Program

from ..helpers.symbolic import Traced

Array = np.ndarray[Any, Any]


@cache
def described_devices() -> dict[str, DeviceInfo]:
    """The devices whose descriptions come with the package, by name."""
    return {name: read_description(name) for name in description_names()}


class NullSession:
    """Runs a model as a session on `device` would, but for the launches: each plan is made and checked, and the graph
    that the passes have left is computed by the operators' references.

    symbols: open dimensions are symbols. Then the first sizes give a template, which has to give for each further size
    for which its guards hold what is emitted for that, or what computes the same if a device here can run it.
    """

    def __init__(self, model: bytes, device: DeviceInfo, precision: Precision, symbols: bool = False) -> None:
        self.model = load_model(model)
        self.importer = ModelImporter(self.model.graph, self.model.functions, symbols=symbols)
        self.device = device
        self.policy = PrecisionPolicy(precision)
        self.memory = None if device.prefers_images and device.image_support else Memory.BUFFER
        self._planned: dict[Any, Graph] = {}
        self._traced: dict[Any, Traced] = {}

    def run(self, feeds: Mapping[str, Array]) -> list[Any]:
        """The model's outputs in order."""
        return list(self._run(self.importer, check_feeds(self.model, feeds)))

    def _run(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
        run_ = ImportRun(importer, feeds, self._run)
        while run_.segment is not None:
            segment = run_.segment
            run_.advance(compute(self._graph(segment, run_.sizes, run_.feeds), run_.feeds))
        return run_.outputs

    def _graph(self, segment: Segment, sizes: tuple[int, ...], feeds: Sequence[Any]) -> Graph:
        """The segment's graph for `sizes`, placed; planned at the first use."""
        if segment not in self._planned and segment not in self._traced:
            check_graph(segment.graph, "import")
            if segment.graph.trace is not None:
                self._traced[segment] = Traced(segment.graph.copy(), self.device, self.policy.precision)
            else:
                self._planned[segment] = self._plan(segment.graph.copy())
        if segment in self._planned:
            return self._planned[segment]
        traced = self._traced[segment]
        program = traced.template.at(sizes)
        assert program is not None, f"guards of the import hold, but not {traced.template.failing(sizes)}"
        check_launches(program, self.device)
        placed = traced.check(sizes, [np.asarray(f) for f in feeds])
        assert placed is not None
        return placed

    def _plan(self, graph: Graph) -> Graph:
        ctx = Context(check=True)
        optimise(graph, ctx, self.device, self.policy)
        set_precision(graph, self.policy)
        check_sizes(graph, self.device)
        place(graph, self.device, memory=self.memory, ctx=ctx)
        check_launches(emit(graph, self.device, check=True), self.device)
        return graph


def compute(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Outputs of a placed graph by the references, epilogues included."""
    arrays = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        ins = [None if v is None else v.data if v.data is not None else arrays[v] for v in node.inputs]
        outs = run_reference(node.op, node.epilogue, ins)
        for v, a in zip(node.outputs, outs, strict=False):
            found = np.asarray(a)
            assert found.shape == v.shape, f"{node.label} gives {found.shape} where %{v.name} has {v.shape}"
            arrays[v] = found.astype(v.dtype.np, copy=False)
    return [v.data if v.data is not None else arrays[v] for v in graph.outputs]


def check_launches(program: Program, device: DeviceInfo) -> None:
    """AssertionError for a launch beyond the device's limits."""
    for step in program.steps:
        if not isinstance(step, LaunchStep):
            continue
        assert step.grid, f"{step.kernel} has no grid"
        assert all(g > 0 for g in step.grid), f"{step.kernel} has the grid {step.grid}"
        if step.group is not None:
            assert math.prod(step.group) <= device.max_work_group_size, f"{step.kernel}: group {step.group}"
            limits = zip(step.group, device.max_work_item_sizes, strict=False)
            assert all(w <= most for w, most in limits), f"{step.kernel}: group {step.group}"
            assert all(g % w == 0 for g, w in zip(step.grid, step.group, strict=True)), f"{step.kernel}: {step.grid}"
