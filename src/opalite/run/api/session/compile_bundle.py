"""compile_model: ahead-of-time compilation of a model to an .opal bundle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.runtime import Runtime, find_runtime
from ....errors import BundleError, InputError
from ....ir.device.device_descriptions import is_description, read_description
from ....ir.device.device_info import DeviceInfo
from ....ir.graph import Graph
from ....ir.plugins import foreign_providers
from ....ir.precision import PrecisionPolicy
from ....ir.tensor_type import TensorType
from ....lazy_dataclass import dataclass
from ....plan.bundle.bundle import SUFFIX, Bundle, Content, GraphText, Variant, programs_of
from ....plan.bundle.dispatch_key import DispatchKey
from ....plan.bundle.graph_record import record_graph
from ....plan.bundle.json_codec import encode_graphs
from ....plan.bundle.write_bundle import save_bundle
from ....plan.control_flow import Flow
from ...execute.build_progress_bar import build_progress
from ...execute.run_trace import RunTrace
from ...model.background.graph_compiler import Compiler
from ...model.compile_options import CompileOptions, parse_precision, parse_tolerance
from ...model.model_inputs_outputs import NodeArg, describe_model
from ...precision.auto_model import choose_precision
from ...report.device_plan import graph_planner
from ..values.ort_value import parse_shape

if TYPE_CHECKING:
    from ....plan.planner import Planned
    from ...model.control_flow.import_control_flow import Imported
    from ...model.imported_model import ImportedModel

Shapes = Mapping[str, tuple[int, ...]]


def compile_model(
    model: str | os.PathLike[str] | bytes,
    path: str | os.PathLike[str],
    *,
    shapes: Shapes | Sequence[Shapes] | None = None,
    device: str | Sequence[str] | None = None,
    precision: str | PrecisionPolicy | None = None,
    memory: str = "auto",
    tune: str = "none",
    strict: bool = False,
    tolerance: float | None = None,
    inputs: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> Bundle:
    """Compile `model` (.onnx path or bytes) and write it to the bundle at `path`.

    shapes: input shapes by name, for models with open dimensions; several mappings give several variants.
    device: one or more device requests, as of InferenceSession; or descriptions of devices that need not be here: .json
        files of `opalite devices --export`, or names of the package's own (docs/devices.md). Their programs are built
        at first use on the device. precision, tolerance: as of InferenceSession; None
        takes OPALITE_PRECISION and OPALITE_TOLERANCE.
    inputs: arrays by name on which precision 'auto' is decided for each device. Inputs that are missing, or have other
        shapes than the variant, are replaced by random numbers. report: called with the decision, as text.
    metadata: texts to add to the model's own (`get_modelmeta().custom_metadata_map`).
    Raises InputError for open dimensions without a shape, BundleError for a model whose shapes depend on data.
    """
    from ...model.imported_model import ImportedModel

    target = Path(path)
    if target.suffix != SUFFIX:
        raise InputError(f"bundle '{target}' must end in {SUFFIX}, by which sessions know one; write {target}{SUFFIX}")
    if not isinstance(model, bytes) and _is_same(model, target):
        raise InputError(f"bundle '{target}' is the model's own file, which would be lost; write another one")
    if not target.parent.is_dir():
        raise InputError(f"the folder of bundle '{target}' does not exist; make it first")
    options = CompileOptions(parse_precision(precision), memory, tune, strict, parse_tolerance(tolerance))
    imported = ImportedModel(model)
    wanted = _parse_shapes(shapes)
    names = [a.name for a in imported.inputs]
    for name in {n for one in wanted for n in one}.difference(names):
        raise InputError(f"a shape is given for {name!r}, but the model's inputs are {', '.join(names) or '(none)'}")
    for name in set(inputs or {}).difference(names):
        raise InputError(f"an input is given for {name!r}, but the model's inputs are {', '.join(names) or '(none)'}")
    requests = [device] if device is None or isinstance(device, str) else device
    variants = []
    notes: list[str] = []
    for request in requests:
        if is_description(request):
            absent = read_description(request or "")
            target_of = _Target(absent, graph_planner(absent, options, keeps_graph=True))
            variants += [_compiled(imported, target_of, _input_types(imported, one)) for one in wanted]
            imported.reset()
            continue
        compiler = Compiler(find_runtime(request), options)
        for one in wanted:
            feeds = _input_types(imported, one)
            if options.precision == "auto":
                policy, lines = _choose(model, compiler.rt, options, feeds, inputs or {})
                compiler = compiler.by(policy)
                notes += lines
                if report is not None:
                    report("\n".join(lines))
            plan = partial(compiler.plan, trace=RunTrace(), keeps_graph=True)
            variants.append(_compiled(imported, _Target(compiler.rt.info, plan, compiler.rt), feeds))
        imported.reset()
    described = describe_model(imported) | {"notes": notes, "plugins": _plugins(variants)}
    described["metadata"]["custom_metadata_map"] |= metadata or {}
    bundle = Bundle(variants, described)
    save_bundle(path, bundle)
    return bundle


@dataclass(frozen=True)
class _Target:
    """A device to compile for, and a function that plans a graph for it. rt: None for a device that is not here."""

    info: DeviceInfo
    plan: Callable[[Graph], Planned]
    rt: Runtime | None = None


def _input_types(imported: ImportedModel, shapes: Shapes) -> dict[str, TensorType]:
    return {a.name: _input_type(a, shapes) for a in imported.inputs}


def _compiled(imported: ImportedModel, target: _Target, feeds: Mapping[str, TensorType]) -> Variant:
    """Compile the variant for these input types: one program, or a control flow of several programs."""
    shapes = {name: t.shape for name, t in feeds.items()}
    try:
        segment = imported.only_segment(feeds)
    except BundleError:  # the model needs more than one program, or cannot be compiled
        flow = imported.flow(feeds)
        if not flow.graphs:
            raise
        return _compiled_flow(imported, target, flow, shapes)
    planned = target.plan(segment.graph)
    program = imported.complete(planned.template or planned.program, segment)
    assert planned.emitted is not None
    graph = GraphText(*encode_graphs([record_graph(planned.emitted, program)]))
    return _variant(target, program, imported.needs(program, segment, shapes), graph)


def _compiled_flow(imported: ImportedModel, target: _Target, found: Imported, shapes: Shapes) -> Variant:
    plans = [target.plan(graph) for graph in found.graphs]
    flow = Flow(tuple(p.program for p in plans), found.steps, tuple(a.name for a in imported.outputs))
    graphs = [record_graph(p.emitted, p.program) for p in plans if p.emitted is not None]
    return _variant(target, flow, DispatchKey.of_all(flow.programs, shapes), GraphText(*encode_graphs(graphs, flow)))


def _is_same(model: str | os.PathLike[str], target: Path) -> bool:
    try:
        return os.path.samefile(model, target)
    except (OSError, ValueError):  # one of the files does not exist, or its name is invalid
        return False


def _choose(
    model: str | os.PathLike[str] | bytes,
    rt: Runtime,
    options: CompileOptions,
    types: Mapping[str, TensorType],
    inputs: Mapping[str, Any],
) -> tuple[PrecisionPolicy, list[str]]:
    """The policy that precision 'auto' chooses for inputs of `types` on a device, and sentences that explain it."""
    from ....tune.measure_candidates import random_array

    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    given = {n for n, t in types.items() if n in arrays and arrays[n].shape == t.shape}
    rng = np.random.default_rng(0)
    feeds = {n: arrays[n] if n in given else random_array(t.dtype, t.shape, rng) for n, t in types.items()}
    made_up = [n for n in types if n not in given]
    policy, lines = choose_precision(
        model, feeds, device=rt.info.id, memory=options.memory, tolerance=options.tolerance, stores_choice=not made_up
    )
    lines[0] += f", compiled for {rt.info.title}"
    if made_up:
        lines.append(f"  chosen on random numbers for {', '.join(made_up)}")
    return policy, lines


def _plugins(variants: Sequence[Variant]) -> dict[str, str]:
    """The operators and kernels of other packages that the variants use, with what provides them."""
    known = foreign_providers()
    if not known:
        return {}
    reports = [r for v in variants for program in programs_of(v.content) for r in program.placement]
    return {name: known[name] for r in reports for name in (r.op, r.kernel) if name in known}


def _parse_shapes(shapes: Shapes | Sequence[Shapes] | None) -> list[Shapes]:
    """One mapping of shapes for each variant. Raises InputError for other types and for negative sizes."""
    wanted = [{}] if shapes is None else [shapes] if isinstance(shapes, Mapping) else list(shapes)
    for one in wanted:
        if not isinstance(one, Mapping):
            raise InputError(f"shapes are a dict such as {{'x': (1, 3, 224, 224)}}, or a list of such; got {shapes!r}")
    return [{name: parse_shape(shape) for name, shape in one.items()} for one in wanted]


def _variant(target: _Target, program: Content, needs: DispatchKey, graph: GraphText) -> Variant:
    """A variant with `program`; of a device that is here, also the driver's binaries, which spare the compiler."""
    rt = target.rt
    if rt is None:
        return Variant(target.info, program, needs=needs, graph=lambda: graph)
    specs = [s.parts for p in programs_of(program) for s in p.sources]
    with build_progress() as progress:
        rt.build_all(specs, progress)
    made = {i: binary for i, spec in enumerate(specs) if (binary := rt.programs.binary(*spec))}
    binaries = {i: partial(bytes, binary) for i, binary in made.items()}
    return Variant(rt.info, program, needs=needs, binaries=binaries, fingerprint=rt.fingerprint, graph=lambda: graph)


def _input_type(arg: NodeArg, shapes: Shapes) -> TensorType:
    if arg.dtype is None:
        raise BundleError(
            f"input '{arg.name}' is {arg.type}: only models of tensors can be compiled; run the .onnx file"
        )
    given = shapes.get(arg.name)
    if given is None:
        if arg.any_rank:
            raise InputError(f"input '{arg.name}' has any shape; give one, such as --shape {arg.name}:1x3x224x224")
        if not all(isinstance(d, int) for d in arg.shape):
            dims = ", ".join(map(str, arg.shape))
            example = "x".join(str(d if isinstance(d, int) else 1) for d in arg.shape)
            raise InputError(
                f"input '{arg.name}' has open dimensions [{dims}]; give its shape, such as --shape {arg.name}:{example}"
            )
        given = tuple(d for d in arg.shape if isinstance(d, int))
    if arg.any_rank:
        return TensorType(arg.dtype, given)
    pairs = zip(arg.shape, given, strict=False)
    if len(given) != len(arg.shape) or any(isinstance(d, int) and d != g for d, g in pairs):
        raise InputError(f"shape {given} does not fit input '{arg.name}' of shape {list(arg.shape)}")
    return TensorType(arg.dtype, given)
