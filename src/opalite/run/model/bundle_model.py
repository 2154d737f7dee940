"""BundleModel: a session's model from an .opal bundle, without onnx and without passes."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...cl.memory.device_tensor import DeviceTensor
from ...cl.programs.build_parallelism import parallel_map
from ...errors import BundleError
from ...ir.constants.lazy_array import pin_all, unpin_all
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.feeds import check_names, check_tensor
from ...plan.bundle.bundle import Bundle, Variant, programs_of
from ...plan.bundle.read_bundle import load_bundle
from ...plan.control_flow import Flow, HostNode
from ...plan.program import HostStep, Program, ReferenceStep
from ...plan.template.program_template import Template
from ...plan.weights.weight_files import WeightFiles
from ..execute.compile_queue import Job
from ..execute.executable import Executable
from ..execute.host_operators import on_host
from ..execute.run_trace import RunTrace
from .background.graph_compiler import Compiler
from .background.respecialize_policy import DistantShape
from .bundle_reemitter import Rebuilder
from .control_flow.host_onnx_operators import onnx_runner
from .control_flow.run_control_flow import FlowRun
from .executable_cache import Compiled, ExecutableCache, SizedProgram
from .model_inputs_outputs import ModelMetadata, NodeArg
from .model_run import ModelRun, is_finite, refuse_hosted
from .route import NO_CONTENTS, Contents, WholeProgram
from .run_lock import Access, RunLock
from .run_request import PLAIN, RunRequest

_SHAPES_KEPT = 64
"""Number of input shapes whose variant is cached."""

OnDistant = Callable[["BundleModel", Variant, Compiled, tuple[int, ...], Mapping[str, Any], RunLock], None]
"""Called when sizes recur that are far from those of a plan: model, variant, executable, sizes, inputs, run lock."""


class BundleModel:
    """A compiled model of a session. on_distant: set by an owner that can plan."""

    tier = "optimized"  # of its programs
    contents: Contents = NO_CONTENTS  # of inputs, for which alone it serves
    draws = False  # random values were drawn at compilation
    repeats = True

    def __init__(
        self, path: str | os.PathLike[str], compiler: Compiler, weight_files: WeightFiles | None = None
    ) -> None:
        """`compiler` has the runtime and options. weight_files: of large weights that are not in the bundle."""
        self.path = path
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
            bundle = load_bundle(self.path, self._weight_files, rebuild)
            if not bundle.variants:
                raise BundleError(f"{self.path} holds no program; compile the model again")
            if self._digest not in ("", bundle.digest):
                raise BundleError(f"{self.path} has changed since the session was opened; open a new session")
            self._bundle, self._digest = bundle, bundle.digest
        return bundle

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The shapes of the first program for `device`."""
        return dict(self._loaded().find(device).needs.shapes)

    def load_program(self, variant: Variant) -> Program:
        """The program of `variant`, with weights that the device lacks in memory. BundleError if they are damaged."""
        program = variant.stored
        pin_all(program.weights.values(), parallel_map, self.compiler.rt.weights.has)
        return program

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
        check_names(os.path.basename(self.path), known, known, feeds)
        shapes = {name: None if arg.any_rank else arg.shape for name, arg in known.items()}
        found = {name: check_tensor(name, arg.dtype, shapes[name], feeds[name]) for name, arg in known.items()}
        # An array of one element is accepted as a scalar; the program needs shape ().
        return {
            n: v.reshape(()) if shapes[n] == [] and not isinstance(v, DeviceTensor) else v for n, v in found.items()
        }

    def run(self, feeds: Mapping[str, Any], request: RunRequest = PLAIN) -> tuple[list[Any], RunTrace]:
        """The outputs in order, and the trace."""
        found = self._find(self.compiler.rt.info, {k: v.shape for k, v in feeds.items()})
        return self.run_variant(*found, feeds, request)

    def run_variant(
        self, variant: Variant, sizes: tuple[int, ...], feeds: Mapping[str, Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace]:
        """The outputs of `variant` at `sizes`, those of `feeds`, and the trace; `overflowed` if they are not finite.

        Only outputs of a stored plan in half storage are looked at.
        """
        if isinstance(flow := variant.content, Flow):
            return self._run_flow(flow, variant, feeds, request)
        with ModelRun(request) as model_run:
            trace, targets = model_run.trace, request.targets
            compiled, at = self.executables.find_or_make(variant, sizes, lambda: self.compiled(variant, sizes, trace))
            if request.waits and compiled.job is not None:
                model_run.release()
                compiled, at = self._wait_for_optimized(variant, sizes, compiled.job) or (compiled, at)
            program = at.program
            distant = DistantShape.NO
            if self.on_distant is not None and request.lock is not None:
                distant = self.executables.record_sizes(variant, compiled, sizes)
            given = self._given(compiled.template, sizes)
            arrays = [given[p.name] if p.name in given else feeds.get(p.name) for p in program.inputs]
            if not compiled.is_proven or program is not compiled.executable.program:
                _check_inputs(program, arrays)
                if [p.name for p in program.outputs] != [a.name for a in self.outputs]:
                    raise BundleError(
                        f"a program of {self.path} has other outputs than its model; compile the model again"
                    )
            kept = {i: targets[p.name] for i, p in enumerate(program.outputs) if p.name in targets}
            is_exclusive = bool(targets or request.recorder or not compiled.is_proven)
            access = Access.EXCLUSIVE if is_exclusive else Access.SHARED
            ran = model_run.run(compiled, at, access, lambda: arrays, kept if compiled.is_proven else None)
        if ran is None:  # the optimized programs have replaced this one
            return self.run_variant(variant, sizes, feeds, request)
        outputs, executable = ran
        compiled.is_proven = True
        model_run.note(compiled, at, executable)
        if distant is not DistantShape.WATCHED:
            model_run.record.route = compiled.route_at(at, feeds, self.contents, lambda: _whole(program, given))
        if distant is DistantShape.DUE and self.on_distant is not None and request.lock is not None:
            self.on_distant(self, variant, compiled, sizes, feeds, request.lock)
        trace.overflowed = compiled.may_overflow and not is_finite(outputs)
        return _owned(program, outputs), trace

    def _wait_for_optimized(
        self, variant: Variant, sizes: tuple[int, ...], job: Job
    ) -> tuple[Compiled, SizedProgram] | None:
        """The executable that `job` made in place of a generic one; None if it failed."""
        started = time.perf_counter()
        with self.compiler.rt.programs.expedite_builds():
            job.wait()
        self.compiler.counters.add_wait("optimized", time.perf_counter() - started)
        return self.executables.find(variant, sizes)

    def _run_flow(
        self, flow: Flow, variant: Variant, feeds: Mapping[str, Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace]:
        """The outputs of a control flow, whose programs run one by one on arrays, and the trace."""
        if self.compiler.options.strict:
            _refuse_host_nodes(flow.steps)
        with ModelRun(request, throughout=True) as model_run:

            def run_one(number: int, arrays: Sequence[Any]) -> list[Any]:
                program = flow.programs[number]
                compiled, at = self.executables.find_or_make(
                    program, (), lambda: self._ready(program, variant, model_run.trace)
                )
                _check_inputs(compiled.executable.program, arrays)
                ran = model_run.run(compiled, at, Access.EXCLUSIVE, lambda: arrays)
                assert ran is not None, "nothing releases a bundle's executables"
                model_run.note(compiled, at)
                return _owned(program, ran[0])

            arrays = {name: on_host(array) for name, array in feeds.items()}
            outputs = FlowRun(run_one, onnx_runner(), request.check).outputs(flow, arrays)
        return outputs, model_run.trace

    def _given(self, template: Template | None, sizes: tuple[int, ...]) -> Mapping[str, np.ndarray[Any, Any]]:
        """Inputs of a template's program that follow from the sizes."""
        if template is None or template.given is None:
            return {}
        try:
            return template.given.at(sizes)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as e:
            raise BundleError(f"{self.path} has no shape tensors for sizes {sizes} ({e})") from e

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
            refuse_hosted([s.node for s in program.steps if isinstance(s, (HostStep, ReferenceStep))])
        if options.trust and variant.fingerprint == rt.fingerprint:
            sources = [s for p in programs_of(variant.content) for s in p.sources]
            rt.programs.add_bundled(
                {(sources[i].text, sources[i].options): read for i, read in variant.binaries.items()}
            )
        self.compiler.counters.add_plan(loaded=1)
        weights = program.weights
        executable = Executable(rt, program, onnx_runner(), counts=self.compiler.counters.programs, tier=self.tier)
        trace.build_s += executable.build_s
        if template is not None:
            template.program.weights = {}  # the device holds them now
        unpin_all(weights.values())  # programs for other sizes reference them too
        notes = (*self.notes, *_other_units(variant.device, rt.info))
        is_checked = self._weight_files is not None and program.stores_halves
        return Compiled(executable, notes, may_overflow=is_checked, sizes=sizes, template=template)


def _whole(program: Program, given: Mapping[str, Any]) -> WholeProgram:
    return WholeProgram([p.name for p in program.inputs], [(p.name, i) for i, p in enumerate(program.outputs)], given)


def _owned(program: Program, outputs: Sequence[Any]) -> list[Any]:
    """Outputs for the caller: those that no step made belong to another caller or to the program, and are copied."""
    borrowed = {p.host for p in program.inputs} | program.host_consts.keys()
    return [
        a.copy() if p.host in borrowed and isinstance(a, np.ndarray) else a
        for p, a in zip(program.outputs, outputs, strict=True)
    ]


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


def _refuse_host_nodes(steps: Sequence[Any]) -> None:
    """PlacementError if operators run on the host between a flow's programs."""
    for step in steps:
        if isinstance(step, HostNode):
            refuse_hosted([step.node])
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
