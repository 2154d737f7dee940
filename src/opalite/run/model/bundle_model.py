"""BundleModel: a session's model from an .opal bundle, without onnx and without passes."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...cl.memory.device_tensor import DeviceTensor
from ...cl.programs.build_parallelism import parallel_map
from ...errors import BundleError, PlacementError
from ...ir.constants.lazy_array import pin_all, unpin_all
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.feeds import check_names, check_tensor
from ...plan.bundle.bundle import Bundle, NotServedError, Variant, programs_of
from ...plan.bundle.read_bundle import load_bundle
from ...plan.control_flow import Flow, HostNode
from ...plan.program import HostStep, Program, ReferenceStep
from ...plan.template.program_template import Template
from ...plan.weights.weight_files import WeightFiles
from ..execute.executable import Executable
from ..execute.host_operators import on_host
from ..execute.run_trace import RunRecord, RunTrace
from .background.graph_compiler import Compiler
from .background.respecialize_policy import DistantShape, distance
from .bundle_reemitter import Rebuilder
from .control_flow.host_onnx_operators import onnx_runner
from .control_flow.run_control_flow import FlowRun
from .executable_cache import Compiled, ExecutableCache
from .model_inputs_outputs import ModelMetadata, NodeArg
from .route import WholeProgram
from .run_lock import Access, RunLock, RunLockHold
from .run_request import PLAIN, RunRequest

_SHAPES_KEPT = 64
"""Number of input shapes whose variant is cached."""

OnDistant = Callable[["BundleModel", Variant, Compiled, tuple[int, ...], Mapping[str, Any], RunLock], None]
"""Called when sizes recur that are far from those of a plan: model, variant, executable, sizes, inputs, run lock."""


class BundleModel:
    """A compiled model of a session. on_distant: set by an owner that can plan."""

    draws = False  # random values were drawn at compilation
    repeats = True

    def __init__(
        self, path: str | os.PathLike[str], compiler: Compiler, weight_files: WeightFiles | None = None
    ) -> None:
        """`compiler` has the runtime and options. weight_files: of large weights that are not in the bundle."""
        self._path = path
        self._weight_files = weight_files
        self.compiler = compiler
        self._bundle: Bundle | None = None
        self._digest = ""
        meta = self._loaded().meta
        try:
            self.meta = ModelMetadata(**meta.get("metadata", {}))
            self.inputs = [_arg(a) for a in meta["inputs"]]
            self.outputs = [_arg(a) for a in meta["outputs"]]
            self.overridable: list[NodeArg] = [_arg(a) for a in meta.get("overridable", ())]
            self.opset = int(meta.get("opset", 0))
            self.notes = [str(n) for n in meta.get("notes", ())]
        except (KeyError, TypeError, ValueError) as e:
            raise BundleError(f"{path} does not describe its inputs and outputs ({e}); compile the model again") from e
        self.executables = ExecutableCache()
        self.on_distant: OnDistant | None = None
        # (variant, sizes) by input shapes.
        self._variants: OrderedDict[tuple[Any, ...], tuple[Variant, tuple[int, ...]]] = OrderedDict()

    def _loaded(self) -> Bundle:
        """The bundle; read again after `reset`, because running a program consumes its weights."""
        bundle = self._bundle
        if bundle is None:
            trusted = self._weight_files is not None or self.compiler.options.trust
            rebuild = None if trusted else Rebuilder(self.compiler.rt.info)
            bundle = load_bundle(self._path, self._weight_files, rebuild)
            if not bundle.variants:
                raise BundleError(f"{self._path} holds no program; compile the model again")
            if self._digest not in ("", bundle.digest):
                raise BundleError(f"{self._path} has changed since the session was opened; open a new session")
            self._bundle, self._digest = bundle, bundle.digest
        return bundle

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The shapes of the first program for `device`."""
        return dict(self._loaded().find(device).needs.shapes)

    def read(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        """A program for these shapes, decoded now, with weights that the device lacks. BundleError for none."""
        return self.load_program(self._find(device, shapes)[0])

    def load_program(self, variant: Variant) -> Program:
        """The program of `variant`, with weights that the device lacks in memory. BundleError if they are damaged."""
        program = variant.stored
        pin_all(program.weights.values(), parallel_map, self.compiler.rt.weights.has)
        return program

    @property
    def path(self) -> str | os.PathLike[str]:
        """The bundle's file."""
        return self._path

    def serves(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether there is a program for inputs of exactly these names and shapes. BundleError for damage."""
        bundle = self._loaded()
        return any(v.needs.shapes.keys() == shapes.keys() for v in bundle.variants) and self._has(device, shapes)

    def distance(self, shapes: Mapping[str, tuple[int, ...]]) -> float:
        """Distance of `shapes` from those it was compiled for, in factors of two. Decodes nothing."""
        found = [v.needs.shapes for v in self._loaded().variants if v.needs.shapes.keys() == shapes.keys()]
        return min((sum(distance(s[name], shapes[name]) for name in s) for s in found), default=math.inf)

    def knows_tuning(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]], stamp: str) -> bool:
        """Whether the program is current with the tuning database at these shapes, which the bundle serves.

        stamp: of the tuning database now. A program that was planned without the database is current.
        """
        variant, sizes = self._find(device, shapes)
        if variant.template is None or variant.template.sizes == sizes:
            return True
        record = variant.stored.tuning
        return record is None or record.stamp == stamp

    def _has(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        try:
            self._find(device, shapes)
        except NotServedError:
            return False
        return True

    def _find(self, device: DeviceInfo, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Variant, tuple[int, ...]]:
        """(variant, its sizes) for these shapes."""
        key = tuple(shapes.items())
        found = self._variants.get(key)
        if found is None:
            found = self._variants[key] = self._loaded().find_at(device, shapes)
            if len(self._variants) > _SHAPES_KEPT:
                self._variants.popitem(last=False)
        return found

    @property
    def caches(self) -> list[ExecutableCache]:
        """The caches of compiled programs."""
        return [self.executables]

    def reset(self) -> None:
        """Evict compiled programs and cached variants."""
        self.executables.clear()
        self._variants = OrderedDict()
        self._bundle = None

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays, checked against the declared inputs."""
        known = {a.name: a for a in self.inputs}
        check_names(os.path.basename(self._path), known, known, feeds)
        shapes = {name: None if arg.any_rank else arg.shape for name, arg in known.items()}
        found = {name: check_tensor(name, arg.dtype, shapes[name], feeds[name]) for name, arg in known.items()}
        # An array of one element is accepted as a scalar; the program needs shape ().
        return {
            n: v.reshape(()) if shapes[n] == [] and not isinstance(v, DeviceTensor) else v for n, v in found.items()
        }

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The outputs in order, and the trace."""
        rt = self.compiler.rt
        run_record = RunRecord()
        trace = RunTrace(run_record=run_record)
        variant, sizes = self._find(rt.info, {k: v.shape for k, v in feeds.items()})
        if isinstance(flow := variant.content, Flow):
            return self._run_flow(flow, variant, feeds, request, trace), trace
        compiled, at = self.executables.find_or_make(variant, sizes, lambda: self.compiled(variant, sizes, trace))
        executable, program, targets = compiled.executable, at.program, request.targets
        distant = DistantShape.NO
        if self.on_distant is not None and request.lock is not None:
            distant = self.executables.record_sizes(variant, compiled, sizes)
        template = compiled.template
        given = self._given(template, sizes)
        arrays = [given[p.name] if p.name in given else feeds.get(p.name) for p in program.inputs]
        if not compiled.is_proven or program is not executable.program:
            _check_inputs(program, arrays)
            if [p.name for p in program.outputs] != [a.name for a in self.outputs]:
                raise BundleError(
                    f"a program of {self._path} has other outputs than its model; compile the model again"
                )
        is_exclusive = bool(targets or request.recorder or not compiled.is_proven)
        access = Access.EXCLUSIVE if is_exclusive else Access.SHARED
        with RunLockHold(request.lock) as hold, hold.enter(executable, program, access) as lease:
            assert lease is not None, "nothing releases a bundle's executables"
            executable, share = lease
            outputs, spent = executable.run(
                arrays,
                {i: targets[p.name] for i, p in enumerate(program.outputs) if p.name in targets}
                if targets and compiled.is_proven
                else None,
                recorder=request.recorder,
                share=share,
            )
        compiled.is_proven = True
        trace.add(spent)
        run_record.add(executable)
        run_record.note(*compiled.notes, *at.notes)
        if distant is not DistantShape.WATCHED:
            run_record.route = compiled.route_at(at, feeds, lambda: WholeProgram(program, given=given))
        if distant is DistantShape.DUE and self.on_distant is not None and request.lock is not None:
            self.on_distant(self, variant, compiled, sizes, feeds, request.lock)
        # Arrays that no step made belong to the caller or to the program: they are copied.
        borrowed = {p.host for p in program.inputs} | program.host_consts.keys()
        found = [
            a.copy() if p.host in borrowed and isinstance(a, np.ndarray) else a
            for p, a in zip(program.outputs, outputs, strict=True)
        ]
        return found, trace

    def _run_flow(
        self, flow: Flow, variant: Variant, feeds: Mapping[str, Any], request: RunRequest, trace: RunTrace
    ) -> list[Any]:
        """The outputs of a control flow, whose programs run one by one on arrays."""
        if self.compiler.options.strict:
            _refuse_host_nodes(flow.steps)
        run_record = trace.run_record
        assert run_record is not None

        def run_one(number: int, arrays: Sequence[Any]) -> list[Any]:
            program = flow.programs[number]
            compiled, _ = self.executables.find_or_make(program, (), lambda: self._ready(program, variant, trace))
            _check_inputs(compiled.executable.program, arrays)
            with compiled.executable.entered():
                outputs, spent = compiled.executable.run(arrays, recorder=request.recorder)
            trace.add(spent)
            run_record.add(compiled.executable)
            run_record.note(*compiled.notes)
            borrowed = {p.host for p in program.inputs} | program.host_consts.keys()
            pairs = zip(program.outputs, outputs, strict=True)
            return [np.array(a) if p.host in borrowed else a for p, a in pairs]

        with RunLockHold(request.lock, throughout=True):
            arrays = {name: on_host(array) for name, array in feeds.items()}
            return FlowRun(run_one, onnx_runner(), request.check).outputs(flow, arrays)

    def _given(self, template: Template | None, sizes: tuple[int, ...]) -> Mapping[str, np.ndarray[Any, Any]]:
        """Inputs of a template's program that follow from the sizes."""
        if template is None or template.given is None:
            return {}
        try:
            return template.given.at(sizes)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as e:
            raise BundleError(f"{self._path} has no shape tensors for sizes {sizes} ({e})") from e

    @property
    def about(self) -> Mapping[str, Any]:
        """The bundle's description of its model."""
        return self._loaded().meta

    def only(self, device: DeviceInfo) -> Variant:
        """The first variant for `device`. BundleError if there is none."""
        return self._loaded().find(device)

    def compiled(self, variant: Variant, sizes: tuple[int, ...], trace: RunTrace) -> Compiled:
        """The executable of `variant` at `sizes`. PlacementError if it has host steps that the options refuse."""
        program, template = variant.stored, variant.template
        if template is not None:
            found = template.at(sizes)
            assert found is not None, "found by its guards"
            program = found
        return self._ready(program, variant, trace, sizes, template)

    def _ready(
        self,
        program: Program,
        variant: Variant,
        trace: RunTrace,
        sizes: tuple[int, ...] = (),
        template: Template | None = None,
    ) -> Compiled:
        """The executable of a program of `variant`."""
        rt, options = self.compiler.rt, self.compiler.options
        if options.strict:
            _refuse_hosts(program)
        if options.trust and variant.fingerprint == rt.fingerprint:
            sources = [s for p in programs_of(variant.content) for s in p.sources]
            rt.programs.add_bundled(
                {(sources[i].text, sources[i].options): read for i, read in variant.binaries.items()}
            )
        self.compiler.counters.add_plan(loaded=1)
        weights = program.weights
        executable = Executable(rt, program, onnx_runner(), counts=self.compiler.counters.programs)
        trace.build_s += executable.build_s
        if template is not None:
            template.program.weights = {}  # the device holds them now
        unpin_all(weights.values())  # programs for other sizes reference them too
        notes = (*self.notes, *_other_units(variant.device, rt.info))
        return Compiled(executable, notes, sizes=sizes, template=template)


def _check_inputs(program: Program, arrays: Sequence[Any]) -> None:
    """BundleError unless the arrays and the program's tables have the dtypes and sizes of its memory.

    The file decides both, so they are not trusted.
    """
    for port, array in zip(program.inputs, arrays, strict=True):
        if array is None or (tuple(array.shape), array.dtype) != (port.shape, port.dtype.np):
            came = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise BundleError(
                f"input '{port.name}' of a bundle's program is {came}, but must be "
                f"{port.dtype}{list(port.shape)}; compile the model again"
            )
    for slot, array in program.weights.items():
        if array.nbytes != program.slots[slot].nbytes:
            raise BundleError(f"a table of '{program.slots[slot].label}' has another size; compile the model again")


def _refuse_hosts(program: Program) -> None:
    """PlacementError if the program has steps on the host."""
    hosted = [f"  {s.node}" for s in program.steps if isinstance(s, (HostStep, ReferenceStep))]
    if hosted:
        raise PlacementError("strict mode rejects nodes that would run on the host:\n" + "\n".join(hosted))


def _refuse_host_nodes(steps: Sequence[Any]) -> None:
    """PlacementError if operators run on the host between a flow's programs."""
    for step in steps:
        if isinstance(step, HostNode):
            raise PlacementError(f"strict mode rejects nodes that would run on the host:\n  {step.node}")
        for inner in ("if_true", "if_false", "body"):
            _refuse_host_nodes(getattr(step, inner, ()))


def _other_units(planned: DeviceInfo, here: DeviceInfo) -> list[str]:
    """A note if the program was planned for another number of compute units."""
    if planned.compute_units == here.compute_units:
        return []
    return [
        f"planned for {planned.compute_units} compute units, this device has {here.compute_units}: the results are the "
        "same, another plan may be faster"
    ]


def _arg(raw: Mapping[str, Any]) -> NodeArg:
    dtype = DType.parse(raw["dtype"])
    return NodeArg(raw["name"], raw["type"], list(raw["shape"]), dtype, raw.get("any_rank", False))
