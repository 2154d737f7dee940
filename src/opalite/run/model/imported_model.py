"""ImportedModel: an imported ONNX model: inputs, outputs, and the segments between them."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BundleError
from ...importer import ContentsNeededError, ImportRun, ModelImporter, check_feeds, load_model
from ...importer.walk.host_tasks import run_tasks
from ...importer.walk.import_run import Selection
from ...importer.walk.loop_body_tasks import BodyTask
from ...importer.walk.segments import GraphOutput, PassThrough, Segment
from ...importer.walk.shape_dependent_inputs import ShapeDependentInputs
from ...ir.constants.model_file import ModelFile
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.model_edits import ModelEdits
from ...plan.bundle.dispatch_key import DispatchKey
from ...plan.program import Port, Program
from ...plan.template.program_template import Template
from ...plan.template.shape_tensors import ShapeTensors, shape_tensors
from .model_inputs_outputs import NodeArg, example_shapes
from .route import Source, WholeProgram

if TYPE_CHECKING:
    from .control_flow.import_control_flow import Imported

Array = np.ndarray[Any, Any]


class ImportedModel:
    """An imported ONNX model; nothing is compiled, for no device."""

    def __init__(
        self, model: str | os.PathLike[str] | bytes, edits: ModelEdits | None = None, file: ModelFile | None = None
    ) -> None:
        """`file`: the open file at the path `model`, if there is one."""
        self._model = load_model(model, edits=edits, file=file)
        self.repeats = self._model.is_reproducible
        self.draws = self._model.uses_random_numbers
        self.data_files = self._model.data_files
        self.inputs = [_arg(v) for v in self._model.inputs]
        self.outputs = [_arg(v) for v in self._model.outputs]
        self.overridable = [_arg(v) for v in self._model.overridable_inputs]
        self.opset = self._model.opsets.get("", 0)
        self.meta = self._model.meta
        # An importer of its own, because `reset` replaces it.
        self.importer = ModelImporter(self._model.graph, self._model.functions)

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The declared shapes, with a guess for open dimensions."""
        return example_shapes(self.inputs)

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays, checked against the model."""
        return check_feeds(self._model, feeds)

    def initializer(self, name: str) -> Array:
        """The value of an initializer."""
        return self._model.graph.constants[name]

    def reset(self) -> None:
        """Forget all segments, and so their compiled programs."""
        self.importer = ModelImporter(self._model.graph, self._model.functions)

    def fresh(self) -> ImportedModel:
        """The same model without segments."""
        made = copy.copy(self)
        made.reset()
        return made

    def only_segment(self, feeds: Mapping[str, Any]) -> Segment:
        """The one segment of the whole model for inputs of these types. Raises BundleError if the model has several.

        If symbolic sizes give several segments, the sizes are fixed: loops whose number of iterations follows from a
        size are unrolled, outputs that follow from sizes are constants. The segment then serves these sizes only.
        """
        try:
            return self._only_segment(self.importer, feeds)
        except BundleError:
            if not self.importer.symbols:
                raise
            plain = ModelImporter(self._model.graph, self._model.functions, symbols=False)
            with suppress(BundleError):
                return self._only_segment(plain, feeds)
            raise

    def _only_segment(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> Segment:
        def no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
            raise BundleError(
                "a loop whose body runs step by step cannot be compiled ahead of time; run the .onnx file"
            )

        try:
            segment = ImportRun(importer, feeds, no_bodies).segment
        except ContentsNeededError as e:
            raise BundleError(f"the model cannot be compiled ahead of time: {e}; run the .onnx file") from e
        if segment is None:
            raise BundleError("the model computes nothing from its inputs; there is nothing to compile")
        if segment.next_stage is not None or segment.tasks:
            rest = ", ".join(t.label for t in segment.tasks) or "nodes that need the contents of others"
            raise BundleError(
                f"the model cannot be compiled ahead of time: shapes depend on data at {rest}; run the .onnx file"
            )
        for name in (a.name for a in self.outputs):
            found, passed = self.source(segment, name)
            if not isinstance(found, GraphOutput | np.ndarray) and passed not in segment.inputs:
                raise _nothing_computes(name)
        return segment

    def source(self, segment: Segment, name: str) -> tuple[GraphOutput | Array | None, str]:
        """(source, name) of an output of the model: a graph output, a constant or None, and the value's own name."""
        found = segment.exports.get(name)
        passed = found.name if isinstance(found, PassThrough) else name
        if isinstance(found, GraphOutput | np.ndarray):
            return found, passed
        return self._model.graph.constants.get(name), passed

    def flow(self, feeds: Mapping[str, Any]) -> Imported:
        """All paths of runs on inputs of these types. BundleError if they depend on data otherwise."""
        from .control_flow.import_control_flow import import_flow  # few models have control flow

        return import_flow(ModelImporter(self._model.graph, self._model.functions, symbols=False), feeds)

    def complete(
        self, program: Program | Template, segment: Segment, names: Mapping[str, str] | None = None
    ) -> Program | Template:
        """A copy of `program` of `segment` with ports that are the model's own inputs and outputs, in order.

        names: of the model's inputs, by their names in the segment.
        """
        if isinstance(program, Template):
            given = None if segment.shape_inputs is None else record_of(segment.shape_inputs)
            made = frozenset[str]() if given is None else frozenset(given.names)
            return replace(program, program=self._completed(program.program, segment, names or {}, made), given=given)
        if segment.shape_inputs is not None:
            raise BundleError("values that follow from the sizes are made by the importer; run the .onnx file")
        return self._completed(program, segment, names or {})

    def needs(
        self,
        program: Program | Template,
        segment: Segment,
        shapes: Mapping[str, tuple[int, ...]],
        names: Mapping[str, str] | None = None,
    ) -> DispatchKey:
        """The dispatch key of a completed `program` of `segment` for inputs of `shapes`. BundleError where
        sizes are contents of an input. names: see `complete`."""
        if not isinstance(program, Template):
            return DispatchKey.of(program, shapes)
        signature = segment.signature
        assert signature is not None, "imported with symbols"
        if signature.contents:
            raise BundleError(f"shapes depend on the contents of {', '.join(signature.contents)}; run the .onnx file")
        at_hand = program.at(program.sizes)
        assert at_hand is not None
        own = {(names or {}).get(n, n): tuple(axes) for n, axes in signature.shapes.items()}
        needs = DispatchKey.of(at_hand, shapes, {n: axes for n, axes in own.items() if n in shapes})
        made = () if program.given is None else program.given.names
        return replace(needs, shapes={n: s for n, s in needs.shapes.items() if n not in made})

    def whole(self, segment: Segment, selection: Selection) -> WholeProgram | None:
        """A run of `segment` alone, to which `selection` led, as one program; operators on the host may follow.

        None where the host runs the body of a loop.
        """
        tasks, wanted = segment.tasks, [a.name for a in self.outputs]
        if any(isinstance(t, BodyTask) for t in tasks):
            return None
        made = {n for t in tasks for n in t.outputs if n}
        needed = dict.fromkeys(n for names in (wanted, *(t.inputs for t in tasks)) for n in names if n not in made)
        names = selection.inputs
        outputs: list[tuple[str, Source]] = []
        for name in needed:
            found, passed = self.source(segment, name)
            source = found.index if isinstance(found, GraphOutput) else names.get(passed, found)
            if source is None:
                source = selection.known.get(passed)
            if source is None:
                return None  # the model's own constants, or a list
            outputs.append((name, source))
        inputs = [names.get(n, n) for n in segment.inputs]
        given = {n: selection.known[n] for n in inputs if n in selection.known}
        if not tasks:
            return WholeProgram(inputs, outputs, given)

        def finish(arrays: list[Any]) -> list[Any]:
            values = dict(zip(needed, arrays, strict=True))
            run_tasks(tasks, values, _no_bodies)
            return [values[n] for n in wanted]

        return WholeProgram(inputs, outputs, given, finish)

    def _completed(
        self, program: Program, segment: Segment, names: Mapping[str, str], made: frozenset[str] = frozenset()
    ) -> Program:
        """A copy of `program` whose inputs, apart from those `made` of sizes, and outputs are the model's own.

        BundleError if nothing computes one.
        """
        given = [names.get(n, n) for n in segment.inputs]
        if foreign := set(given).difference(made, (a.name for a in (*self.inputs, *self.overridable))):
            raise BundleError(f"'{min(foreign)}' follows from contents of an input; run the .onnx file")
        inputs = [replace(port, name=name) for port, name in zip(program.inputs, given, strict=True)]
        ports = {port.name: port for port in inputs}
        outputs: list[Port] = []
        program = replace(program, inputs=inputs, host_consts=dict(program.host_consts))
        for name in (a.name for a in self.outputs):
            found, passed = self.source(segment, name)
            if isinstance(found, GraphOutput):
                outputs.append(replace(program.outputs[found.index], name=name))
            elif names.get(passed, passed) in ports:
                outputs.append(replace(ports[names.get(passed, passed)], name=name))
            elif found is None:
                raise _nothing_computes(name)
            else:
                outputs.append(Port(name, DType.of(found), found.shape, program.host_slots))
                program.host_consts[program.host_slots] = found
                program.host_slots += 1
        program.outputs = outputs
        return program


def _nothing_computes(name: str) -> BundleError:
    return BundleError(f"output '{name}' is an input that nothing computes with; run the .onnx file")


def record_of(given: ShapeDependentInputs) -> ShapeTensors:
    """Shape tensors that compute the same without the importer."""
    return shape_tensors(len(given.trace.symbols), given.leaves, given.nodes, given.wanted)


def _no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise AssertionError("whole() refuses tasks that run a body")


def _arg(info: Any) -> NodeArg:
    dtype = info.dtype if info.kind == "tensor" else None
    held = info.elem if info.kind == "optional" and info.elem is not None else info
    return NodeArg(info.name, info.onnx_type, list(held.shape or ()), dtype, held.shape is None)
