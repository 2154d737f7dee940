"""Planner: from an imported graph to a Program. It has no state and needs no device.

`plan` is `prepare`, which rewrites the graph, followed by `lay_out`, which places and emits it. Tuning calls `lay_out`
twice: without and with measured times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir.constants.lazy_array import Array, LazyArray, pin_all, unpin_all
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph, Node
from ..ir.place import Memory
from ..ir.precision import Precision, PrecisionPolicy
from ..ir.shape_hints import hinted
from ..kernels.kernel import LaunchConfig, Tier, all_kernels
from ..layout.assign_precision import set_precision
from ..layout.kernel_candidates import Measured
from ..ops.host import HostOp
from ..passes.pipeline import optimise, place
from ..passes.rewrite_driver import Context, Rewrite
from .emit_program import Emitter, emit, emit_template
from .memory.memory_limits import check_sizes
from .program import LaunchStep, NodeReport, Program, ReferenceStep, TuningRecord
from .template.program_template import Template


@dataclass(frozen=True)
class PlanOptions:
    """Requests to the planner.

    policy: precision of each node. memory: 'auto', 'buffer' or 'image' for tensors, 'low' or 'normal' for weights:
    'low' keeps float weights in 8 bits. strict: reject nodes that would run on the host. tries_images: consider images
    wherever the device has them, to be measured.

    tier: "optimized" picks kernels specialized for a node's window and size; "generic" picks those of a few programs
    that serve any model (docs/tiers.md): slower, but without a wait once these programs are built. builds: whether the
    generic tier may use an optimized kernel for nodes without a generic one; else they run on the host.

    late_weights: weights from the model file become LazyArrays that are packed on use; `Planned.load_weights` packs
    them in parallel. keeps_graph: whether to set `Planned.emitted`.
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
        """The memory of tensors for `passes.pipeline.place`; BUFFER on a device without images.

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
    """Facts about the device and its speed.

    measured: seconds of kernels, for kernel selection. find_settings: tuned parameters and work-groups of selected
    kernels; other nodes get the defaults.
    """

    device: DeviceInfo
    measured: Measured | None = None
    find_settings: Callable[[Sequence[Node]], Mapping[Node, LaunchConfig]] | None = None


@dataclass(frozen=True)
class Planned:
    """A Program, notes on its planning, and reports on its nodes.

    template: of a graph with symbols, gives the Program for other sizes; `program` is the one for the current sizes.
    tier: as requested. emitted: the placed graph and its emission, if it is to be recorded.
    """

    program: Program
    notes: tuple[str, ...] = ()
    template: Template | None = None
    tier: Tier = "optimized"
    emitted: Emitter | None = None

    def set_tuning(self, record: TuningRecord) -> None:
        """Store the queries to the tuning database in the program, and in those for other sizes."""
        self.program.tuning = record
        if self.template is not None:
            self.template.program.tuning = record

    @property
    def weights(self) -> list[Array | LazyArray]:
        """Every weight; a weight shared by programs appears once per program."""
        programs = (self.program, *(() if self.template is None else (self.template.program,)))
        return [weight for program in programs for weight in program.weights.values()]

    def release_weights(self) -> None:
        """Release the memory of late weights, which are packed or read again on use."""
        unpin_all(self.weights)

    def load_weights(
        self,
        each: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]] = map,
        is_elsewhere: Callable[[LazyArray], bool] = lambda _: False,
    ) -> None:
        """Load every weight into memory, except late weights for which `is_elsewhere` is true: already on the device.

        each: `map`, or a parallel substitute, for the loading.
        """
        pin_all(self.weights, each, is_elsewhere)

    @property
    def fallbacks(self) -> Counter[str]:
        """Nodes that a generic plan has no generic kernels for.

        Launches of optimized kernels, by kernel, and host nodes, as 'host: OPERATOR'.
        """
        if self.tier != "generic":
            return Counter()
        special = {k.name for k in all_kernels() if k.tier == "optimized"}
        launches = Counter(s.kernel for s in self.program.steps if isinstance(s, LaunchStep) and s.kernel in special)
        return launches + Counter(f"host: {r.op}" for r in self._hosted)

    @property
    def host_work(self) -> float:
        """Operations and bytes of nodes that run on the host for lack of a generic kernel."""
        return sum(r.flops + r.nbytes for r in self._hosted)

    @property
    def _hosted(self) -> list[NodeReport]:
        """Nodes of operators that have kernels, on the host."""
        if not any(isinstance(s, ReferenceStep) for s in self.program.steps):
            return []  # reports of templates are computed on use
        return [r for r in self.report if r.target == "host" and r.op != HostOp.__name__]

    @property
    def report(self) -> Sequence[NodeReport]:
        """One report a node, in order; as `explain()` shows them."""
        return self.program.placement


@dataclass(frozen=True)
class Prepared:
    """A rewritten graph before placement, and the context of the rewriting."""

    graph: Graph
    context: Context

    def copy(self) -> Prepared:
        """A copy, since `lay_out` consumes its argument."""
        return Prepared(self.graph.copy(), self.context)


def plan(graph: Graph, options: PlanOptions, knowledge: Knowledge) -> Planned:
    """The Program of `graph`, which is consumed.

    UnsupportedOpError, PlacementError in strict mode, DeviceMemoryError for a tensor larger than the device's memory.
    """
    return lay_out(prepare(graph, options, knowledge.device), options, knowledge)


def prepare(graph: Graph, options: PlanOptions, device: DeviceInfo, log: list[Rewrite] | None = None) -> Prepared:
    """`graph`, rewritten in place, each node with its precision. log: gets every rewrite, also those of `lay_out`."""
    context = Context(log=log)
    optimise(graph, context, device, options.policy, options.tier, options.memory == "low")
    set_precision(graph, options.policy, device)
    check_sizes(graph, device)
    return Prepared(graph, context)


def lay_out(prepared: Prepared, options: PlanOptions, knowledge: Knowledge) -> Planned:
    """The Program planned from `prepared`, whose graph is modified: kernels, layouts, casts and memory plan."""
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
    """Tuned settings by node, with hints for symbolic sizes."""
    if knowledge.find_settings is None:
        return None
    asked = [hinted(node) for node in nodes]
    found = knowledge.find_settings(asked)
    return {node: found[near] for node, near in zip(nodes, asked, strict=True) if near in found}
