"""The planner: from an imported graph to a Program. No state, no device: what is known is given.

`plan` is `prepare`, which rewrites the graph, and `lay_out`, which places and emits it. Whoever tunes does the second
step twice: without measured times and with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..ir.constants.lazy_array import LazyArray, hold_all, let_go_all
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph, Node
from ..ir.place import Memory
from ..ir.precision import Precision, PrecisionPolicy
from ..ir.shape_hints import hinted
from ..kernels.kernel import Tier
from ..kernels.kernel_registry import all_kernels
from ..kernels.launch_config import LaunchConfig
from ..layout.assign_precision import set_precision
from ..layout.kernel_candidates import Measured
from ..ops.host import HostOp
from ..passes.pipeline import optimise, place
from ..passes.rewrite_driver import Context
from .emit_program import Emitter, emit, emit_template
from .memory.memory_limits import check_sizes
from .node_report import NodeReport
from .program import LaunchStep, Program, ReferenceStep, TuningRecord
from .template.program_template import Template

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PlanOptions:
    """What is asked for.

    policy: what each node computes in. memory: 'auto', 'buffer' or 'image', or what weights take: 'low', in 8 bits what
    the model has in floats, or 'normal', as the model has them. strict: refuse nodes that the host would run.
    tries_images: consider images wherever the device has them, for they are going to be measured.
    tier: "optimized" picks kernels made for a node's window and size; "generic" those of a few programs that serve any
    model, where there is one (docs/tiers.md): slower, and nothing to wait for once these are built.
    builds: whether, in the generic tier, an optimized kernel computes what no generic one does; else the host does.
    late_weights: those that are made of what lies in the model's file are StoredArrays, which are made when they are
    wanted; `Planned.load_weights` makes them side by side. keeps_graph: `Planned.emitted` is there.
    """

    policy: PrecisionPolicy = field(default_factory=lambda: PrecisionPolicy(Precision.FP32))
    memory: str = "auto"
    strict: bool = False
    tries_images: bool = False
    tier: Tier = "optimized"
    late_weights: bool = False
    builds: bool = True
    keeps_graph: bool = False

    def held_in(self, device: DeviceInfo, is_measured: bool = False) -> Memory | None:
        """What tensors are held in, as `passes.pipeline.place` takes it; a device without images has buffers only.

        is_measured: whether images may have been measured.
        """
        if self.tier == "generic":
            return Memory.BUFFER
        if self.memory == "image" and device.image_support:
            return Memory.IMAGE2D
        may = device.prefers_images or self.tries_images or is_measured
        if self.memory != "buffer" and device.image_support and may:
            return None
        return Memory.BUFFER


@dataclass(frozen=True)
class Knowledge:
    """What is known of the device, and of how fast nodes run on it.

    measured: seconds of kernels, for picking. find_settings: parameters and work-groups of picked kernels; nodes
    without one take the untuned ones.
    """

    device: DeviceInfo
    measured: Measured | None = None
    find_settings: Callable[[Sequence[Node]], Mapping[Node, LaunchConfig]] | None = None


@dataclass(frozen=True)
class Planned:
    """A Program, sentences on how it came to be what it is, and where each node runs and why.

    template: of a graph with symbols: what gives the Program for other sizes; `program` is that for those at hand.
    tier: as asked for. emitted: the placed graph and what was emitted of it, where it is to be recorded.
    """

    program: Program
    notes: tuple[str, ...] = ()
    template: Template | None = None
    tier: Tier = "optimized"
    emitted: Emitter | None = None

    def set_tuning(self, record: TuningRecord) -> None:
        """Keep what was asked of the tuning database with the program, and with those for other sizes."""
        self.program.tuning = record
        if self.template is not None:
            self.template.program.tuning = record

    @property
    def weights(self) -> list[Array | LazyArray]:
        """Every weight; those that programs share once for each."""
        programs = (self.program, *(() if self.template is None else (self.template.program,)))
        return [weight for program in programs for weight in program.weights.values()]

    def release_weights(self) -> None:
        """Make late weights again when they are taken, or read them from the file, and have no memory for them now."""
        let_go_all(self.weights)

    def load_weights(
        self,
        each: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map,
        is_elsewhere: Callable[[LazyArray], bool] = lambda _: False,
    ) -> None:
        """Have every weight in memory but for late ones that are `is_elsewhere`, such as on the device. each: makes
        those that are not, perhaps side by side."""
        hold_all(self.weights, each, is_elsewhere)

    @property
    def fallbacks(self) -> Counter[str]:
        """What a plan of the generic tier has no kernels for: launches of optimized kernels, by kernel, and nodes that
        the host computes instead, as 'host: OPERATOR'."""
        if self.tier != "generic":
            return Counter()
        special = {k.name for k in all_kernels() if k.tier == "optimized"}
        launches = Counter(s.kernel for s in self.program.steps if isinstance(s, LaunchStep) and s.kernel in special)
        return launches + Counter(f"host: {r.op}" for r in self._hosted)

    @property
    def host_work(self) -> float:
        """Operations and bytes of the nodes that the host computes in place of kernels."""
        return sum(r.flops + r.nbytes for r in self._hosted)

    @property
    def _hosted(self) -> list[NodeReport]:
        """Nodes of operators that have kernels, on the host."""
        if not any(isinstance(s, ReferenceStep) for s in self.program.steps):
            return []  # reports of open sizes are made when they are looked at
        return [r for r in self.report if r.target == "host" and r.op != HostOp.__name__]

    @property
    def report(self) -> Sequence[NodeReport]:
        """One report a node, in order; as `explain()` shows them."""
        return self.program.placement


@dataclass(frozen=True)
class Prepared:
    """A rewritten graph that is not placed yet, and the rewriting's context, which placing goes on with."""

    graph: Graph
    context: Context

    def copy(self) -> Prepared:
        """One to lay out, which consumes it."""
        return Prepared(self.graph.copy(), self.context)


def plan(graph: Graph, options: PlanOptions, knowledge: Knowledge) -> Planned:
    """The Program of `graph`, which is consumed.

    UnsupportedOpError, PlacementError in strict mode, DeviceMemoryError for a tensor larger than the device's memory.
    """
    return lay_out(prepare(graph, options, knowledge.device), options, knowledge)


def prepare(graph: Graph, options: PlanOptions, device: DeviceInfo) -> Prepared:
    """`graph`, rewritten in place, each node with its precision."""
    context = Context()
    optimise(graph, context, device, options.policy, options.tier, options.memory == "low")
    set_precision(graph, options.policy, device)
    check_sizes(graph, device)
    return Prepared(graph, context)


def lay_out(prepared: Prepared, options: PlanOptions, knowledge: Knowledge) -> Planned:
    """The Program of a prepared graph, which is consumed: kernels and layouts picked, casts put in, memory planned."""
    graph, device = prepared.graph, knowledge.device
    place(
        graph,
        device,
        memory=options.held_in(device, knowledge.measured is not None),
        strict=options.strict,
        measured=knowledge.measured,
        ctx=replace(prepared.context, applied=dict(prepared.context.applied)),
        tier=options.tier,
        builds=options.builds,
    )
    settings = _settings(graph.nodes, knowledge)
    kept: list[Emitter] = []
    keep = kept.append if options.keeps_graph else None
    if graph.trace is None:
        program = emit(graph, device, settings=settings, late=options.late_weights, keep=keep)
        return Planned(program, tier=options.tier, emitted=next(iter(kept), None))
    template = emit_template(graph, device, settings=settings, late=options.late_weights, keep=keep)
    found = template.at(template.sizes)
    assert found is not None
    return Planned(found, template=template, tier=options.tier, emitted=next(iter(kept), None))


def _settings(nodes: Sequence[Node], knowledge: Knowledge) -> Mapping[Node, LaunchConfig] | None:
    """Settings that are known, by those nodes at the sizes at hand."""
    if knowledge.find_settings is None:
        return None
    asked = [hinted(node) for node in nodes]
    found = knowledge.find_settings(asked)
    return {node: found[near] for node, near in zip(nodes, asked, strict=True) if near in found}
