"""DevicePlan: the plan of a model for a device that need not be here, by its description alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...cost.cost_tables import EstimateError
from ...errors import BundleError, InputError, ShapeError
from ...ir.device.device_descriptions import read_description
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Graph
from ...ir.precision import Precision, PrecisionPolicy
from ...ir.tensor_type import TensorType
from ...lazy_dataclass import dataclass
from ...plan.bundle.bundle import is_bundle
from ...plan.control_flow import FlowStep, RunLoop, RunProgram, Switch
from ...plan.program import LaunchStep, MemoryReport, NodeReport, Program
from ..model.background.plan_graph import compute_largest
from ..model.compile_options import CompileOptions
from ..model.imported_model import ImportedModel
from ..model.model_inputs_outputs import assumed_shapes, example_shapes
from .explanation import Explanation, memory_line
from .run_capture import Part, RunCapture

if TYPE_CHECKING:
    from ...plan.planner import Planned, PlanOptions


LENGTHS = tuple(4**n for n in range(8))
"""Lengths assumed in turn for open axes that are neither batches nor of pictures, until the model can be imported: a
filter of 512 samples needs as many."""


@dataclass(frozen=True)
class DevicePlan:
    """The programs of a model for one device and one set of input shapes, with estimated times.

    assumed: shapes of inputs with open dimensions for which the caller gave none. parts: the programs, with the graphs
    that they were planned from. options: by which.
    """

    device: DeviceInfo
    precision: str
    programs: tuple[Program, ...]
    assumed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    options: PlanOptions | None = None

    @property
    def nodes(self) -> list[NodeReport]:
        """Reports of all nodes in order of execution; `seconds` are the cost model's estimates."""
        return [report for program in self.programs for report in program.placement]

    @property
    def launches(self) -> list[LaunchStep]:
        """Kernel launches of one run."""
        return [s for program in self.programs for s in program.steps if isinstance(s, LaunchStep)]

    @property
    def kernels(self) -> Counter[str]:
        """Launches by kernel."""
        return Counter(s.kernel for s in self.launches)

    @property
    def layouts(self) -> Counter[str]:
        """Outputs of nodes by place."""
        return Counter(place for report in self.nodes for place in report.places)

    @property
    def seconds(self) -> float:
        """Estimated seconds of one run: the sum over all nodes."""
        return sum(report.seconds for report in self.nodes)

    @property
    def likely_seconds(self) -> tuple[float, float]:
        """Seconds between which two thirds of networks lie that have such an estimate, by the errors known for devices
        of this kind."""
        error = EstimateError.of(self.device)
        usual = self.seconds / error.ratio
        return usual / error.factor, usual * error.factor

    @property
    def estimate(self) -> str:
        """The estimated time, and what it is worth, as a sentence."""
        low, high = (f"{1e3 * s:.2g}" for s in self.likely_seconds)
        return (
            f"{1e3 * self.seconds:.3g} ms a run estimated, {low} to {high} ms likely by earlier estimates beside "
            f"{EstimateError.origin(self.device)}"
        )

    @property
    def memory(self) -> MemoryReport:
        """The memory plan; of several programs, the sums."""
        total = MemoryReport()
        for m in (program.memory for program in self.programs):
            total.chosen = m.chosen
            total.totals[m.chosen] = total.totals.get(m.chosen, 0) + m.totals.get(m.chosen, 0)
            total.static += m.static
            total.separate += m.separate
            total.images += m.images
        return total

    def to_raw(self) -> dict[str, Any]:
        """The plan as JSON-ready data: kernels, launches, layouts, bytes moved and held, estimated milliseconds."""
        memory = self.memory
        return {
            "device": self.device.name,
            "precision": self.precision,
            "kernels": dict(sorted(self.kernels.items())),
            "launches": len(self.launches),
            "layouts": dict(sorted(self.layouts.items())),
            "host_nodes": sum(r.target == "host" for r in self.nodes),
            "bytes_moved": int(sum(s.nbytes for s in self.launches)),
            "arena_bytes": memory.totals.get(memory.chosen, 0),
            "image_bytes": memory.images,
            "weight_bytes": memory.static,
            "predicted_ms": float(f"{1e3 * self.seconds:.4g}"),
            "likely_ms": [float(f"{1e3 * s:.2g}") for s in self.likely_seconds],
        }

    def capture(self) -> RunCapture:
        """The plan as `session.capture()` returns it for a device that is here."""
        notes = [memory_line(program.memory) for program in self.programs]
        return RunCapture(self.device, self.precision, list(self.parts), self.options, notes=notes)

    def explain(self) -> Explanation:
        """The plan as `session.explain()` returns it for a device that is here."""
        found = Explanation(self.device.title, nodes=self.nodes)
        for program in self.programs:
            found.memory.append(program.memory)
        found.notes.append("planned by the device's description; times are estimates")
        return found


def plan_for_device(
    model: str | os.PathLike[str] | bytes | ImportedModel,
    device: DeviceInfo | str,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    precision: str | PrecisionPolicy | None = None,
    memory: str = "auto",
    strict: bool = False,
) -> DevicePlan:
    """Plan `model` for `device`, which need not be here.

    device: a DeviceInfo, the path of its .json file, or the name of a description of the package. shapes: of inputs by
    name; open dimensions without a shape get an example. precision: as of InferenceSession, but for 'auto', which needs
    the device; None stores halves where that is faster on the device. Raises InputError for shapes that do not fit,
    BundleError for a model whose shapes depend on data.
    """
    if isinstance(device, str):
        device = read_description(device)
    if not isinstance(model, ImportedModel) and is_bundle(model):
        raise InputError(
            f"{model!r} is a bundle, which has one device's plan; for {device.title} give the model's file"
        )
    imported = model if isinstance(model, ImportedModel) else ImportedModel(model)
    given = dict(shapes or {})
    examples = example_shapes(imported.inputs)
    if unknown := given.keys() - examples.keys():
        raise InputError(
            f"a shape is given for {', '.join(sorted(unknown))}, but the model's inputs are {', '.join(examples)}"
        )
    wanted = ("fp16" if device.fast_half else "fp32") if precision is None else precision
    options = CompileOptions(wanted, memory, "none", strict)
    make = graph_planner(device, options)
    graphs, loops, assumed = example_graphs(imported, given)
    before = [graph.copy() for graph in graphs]
    planned = [make(graph) for graph in graphs]
    imported.reset()
    named = wanted if isinstance(wanted, str) else "a policy"
    parts = [
        Part(p.program, graph, () if p.template is None else p.template.sizes, loops.get(i, ""))
        for i, (p, graph) in enumerate(zip(planned, before, strict=True))
    ]
    programs = tuple(p.program for p in planned)
    return DevicePlan(device, named, programs, assumed, tuple(parts), plan_options(device, options))


_Graphs = tuple[Sequence[Graph], Mapping[int, str]]


def example_graphs(
    imported: ImportedModel, given: Mapping[str, tuple[int, ...]]
) -> tuple[Sequence[Graph], Mapping[int, str], dict[str, tuple[int, ...]]]:
    """(the graphs and loops of a model with inputs of `given` shapes, the shapes assumed for open inputs)."""
    is_open = [a.name for a in imported.inputs if not all(isinstance(d, int) for d in a.shape) and a.name not in given]
    for length in LENGTHS:
        shapes = example_shapes(imported.inputs, length)
        assumed = {name: shapes[name] for name in is_open}
        shapes.update(given)
        types = {a.name: TensorType(a.dtype, shapes[a.name]) for a in imported.inputs if a.dtype is not None}
        try:
            with assumed_shapes(assumed):
                return *_graphs(imported, types), assumed
        except ShapeError:
            if length == LENGTHS[-1] or not assumed:
                raise
    raise AssertionError("the last length returns or raises")


def _graphs(imported: ImportedModel, types: Mapping[str, TensorType]) -> _Graphs:
    """(the model's graph, or those of its flow; the loop whose body a graph is, by its number)."""
    try:
        return [imported.only_segment(types).graph], {}
    except BundleError:
        flow = imported.flow(types)
        if not flow.graphs:
            raise
        return flow.graphs, _loops_of(flow.steps)


def _loops_of(steps: Sequence[FlowStep], loop: str = "") -> dict[int, str]:
    """The loop whose body each program is, by number; programs outside of loops are left out."""
    found: dict[int, str] = {}
    for step in steps:
        if isinstance(step, RunProgram) and loop:
            found[step.program] = loop
        elif isinstance(step, Switch):
            found |= _loops_of((*step.if_true, *step.if_false), loop)
        elif isinstance(step, RunLoop):
            found |= _loops_of(step.body, step.node)
    return found


def graph_planner(device: DeviceInfo, options: CompileOptions, keeps_graph: bool = False) -> Callable[[Graph], Planned]:
    """A function that plans a graph, which is consumed, for a device by its description.

    InputError: see `plan_options`.
    """
    from ...plan.planner import Knowledge, plan

    wanted = plan_options(device, options, keeps_graph)

    def make(graph: Graph) -> Planned:
        compute_largest(graph, wanted.policy)
        return plan(graph, wanted, Knowledge(device))

    return make


def plan_options(device: DeviceInfo, options: CompileOptions, keeps_graph: bool = False) -> PlanOptions:
    """The planner's options for a device by its description.

    Raises InputError for precision 'auto' and for tuning, which need the device.
    """
    from ...plan.planner import PlanOptions

    if options.precision == "auto" or options.tune != "none":
        what = "precision auto compares programs" if options.precision == "auto" else "tuning measures kernels"
        raise InputError(
            f"{what} on the device, and {device.title} is only described; choose fp32 or fp16, and no tuning"
        )
    named = options.precision
    policy = PrecisionPolicy.named(named) if isinstance(named, str) else named
    if policy.precision is Precision.FP16_FAST and not device.half_sums:
        raise InputError(f"precision fp16_fast needs half arithmetic, which {device.title} lacks; use fp16 or fp32")
    return PlanOptions(policy, options.memory, options.strict, late_weights=True, keeps_graph=keeps_graph)
