"""OnnxSource: a session's model from an ONNX file - imported segment by segment for the shapes that arrive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...cl.tensor import DeviceTensor
from ...errors import BundleError, PlacementError
from ...importer import (
    ContentsNeededError,
    Task,
    check_feeds,
    load_model,
)
from ...importer.walk.segments import ModelImporter, Output, Run, Same, Segment
from ...importer.walk.tasks import BodyTask, NodeTask, TrimTask, run_tasks
from ...ir.device import DeviceInfo
from ...ir.dtype import DType
from ...ir.edits import ModelEdits
from ...plan.program import Port, Program
from ...plan.report import NodeReport, task_report
from ..execute.exchange import Target
from ..execute.executable import Executable
from ..execute.trace import Timing
from .compiler import Compiler
from .example_shapes import example_shapes
from .model import Whole
from .overflow import recover
from .ports import NodeArg

OnPlan = Callable[[Program, Segment], None]
"""Told of the program of a segment that is the whole model, before it is made ready."""


class OnnxSource:
    """An ONNX model behind a session."""

    def __init__(
        self, model: str | os.PathLike[str] | bytes, edits: ModelEdits | None = None, contents: bytes | None = None
    ) -> None:
        """`contents`: what the file `model` holds, where it has been read already."""
        self._model = load_model(model, edits=edits, contents=contents)
        self.repeats = self._model.repeats
        self.draws = self._model.draws
        self.inputs = [_arg(v) for v in self._model.inputs]
        self.outputs = [_arg(v) for v in self._model.outputs]
        self.overridable = [_arg(v) for v in self._model.defaulted_inputs]
        self.opset = self._model.opsets.get("", 0)
        self.meta = self._model.meta
        # Not the model's own importer, which lives as long as the model: closing releases what segments compiled.
        self.importer = ModelImporter(self._model.graph, self._model.functions)
        self._last: tuple[Program, Segment] | None = None  # of the last run, if there was no other

    def example_shapes(self, device: DeviceInfo) -> dict[str, tuple[int, ...]]:
        """The declared shapes, with a guess for open dimensions."""
        return example_shapes(self.inputs)

    def reset(self) -> None:
        """Forget every segment, and with them what was compiled."""
        m = self._model
        self.importer = ModelImporter(m.graph, m.functions)
        self._last = None

    def whole(self) -> Whole | None:
        """The last run as one program, if it was one; operators on the host may follow."""
        if self._last is None:
            return None
        program, segment = self._last
        tasks, wanted = segment.tasks, [a.name for a in self.outputs]
        if any(isinstance(t, BodyTask) for t in tasks):
            return None
        made = {n for t in tasks for n in t.outputs if n}
        needed = dict.fromkeys(n for names in (wanted, *(t.inputs for t in tasks)) for n in names if n not in made)
        try:
            completed = self._completed(program, segment, list(needed))
        except BundleError:
            return None  # such as an output that is an input
        if not tasks:
            return Whole(completed)

        def finish(arrays: list[Any]) -> list[Any]:
            values = dict(zip(needed, arrays, strict=True))
            run_tasks(tasks, values, _no_bodies)
            return [values[n] for n in wanted]

        return Whole(completed, finish)

    def check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds as arrays, checked against the model."""
        return check_feeds(self._model, feeds)

    def only_segment(self, feeds: Mapping[str, Any]) -> Segment:
        """The one segment of the whole model for inputs of these types. BundleError if there are more."""

        def no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
            raise BundleError(
                "a loop whose body runs step by step cannot be compiled ahead of time; run the .onnx file"
            )

        try:
            segment = self.importer.begin(feeds, no_bodies).segment
        except ContentsNeededError as e:
            raise BundleError(f"the model cannot be compiled ahead of time: {e}; run the .onnx file") from e
        if segment is None:
            raise BundleError("the model computes nothing from its inputs; there is nothing to compile")
        if segment.following is not None or segment.tasks:
            rest = ", ".join(t.label for t in segment.tasks) or "nodes that need the contents of others"
            raise BundleError(
                f"the model cannot be compiled ahead of time: shapes depend on data at {rest}; run the .onnx file"
            )
        return segment

    def complete(self, program: Program, segment: Segment) -> Program:
        """A copy of `program` of `segment` with ports that are the model's own inputs and outputs, in order."""
        return self._completed(program, segment, [a.name for a in self.outputs])

    def _completed(self, program: Program, segment: Segment, outputs: Sequence[str]) -> Program:
        """A copy of `program` whose inputs are the model's own, and its outputs the values of these names."""
        program = replace(program, inputs=[*program.inputs], host_consts=dict(program.host_consts))
        for port, name in zip(program.inputs, segment.inputs, strict=True):
            program.inputs[program.inputs.index(port)] = replace(port, name=name)
        computed = list(program.outputs)
        program.outputs = []
        for name in outputs:
            program.outputs.append(self._output_port(program, segment, name, computed))
        return program

    def _output_port(self, program: Program, segment: Segment, name: str, computed: Sequence[Port]) -> Port:
        found = segment.exports.get(name)
        if isinstance(found, Output):
            return replace(computed[found.index], name=name)
        passed = found.name if isinstance(found, Same) else name
        for port in program.inputs:
            if port.name == passed:
                return replace(port, name=name)
        array = found if isinstance(found, np.ndarray) else self._model.graph.constants.get(name)
        if array is None:
            raise BundleError(f"output '{name}' is an input that nothing computes with; run the .onnx file")
        host = program.host_slots
        program.host_slots += 1
        program.host_consts[host] = array
        return Port(name, DType.of(array), array.shape, host)

    def run(
        self,
        compiler: Compiler,
        feeds: Mapping[str, Any],
        timing: Timing,
        targets: Mapping[str, Target] | None = None,
        on_plan: OnPlan | None = None,
    ) -> list[Any]:
        """The model's outputs in order."""
        self._last = None

        def whole(program: Program, segment: Segment) -> None:
            self._last = program, segment

        return _run(self.importer, compiler, feeds, timing, targets or {}, on_plan, whole)


def _run(
    importer: ModelImporter,
    compiler: Compiler,
    feeds: Mapping[str, Any],
    timing: Timing,
    targets: Mapping[str, Target],
    on_plan: OnPlan | None = None,
    on_whole: OnPlan | None = None,
) -> list[Any]:
    """on_whole: told of the segment that turns out to be all of the run, but for what the host does after it."""

    def run_body(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
        return _run(body, compiler, inner, timing, {})

    clock = time.perf_counter
    started = clock()
    run = importer.begin(feeds, run_body)
    timing.import_s += clock() - started
    # Arrays that a segment has on the device, by identity, which is theirs as long as they are held here.
    uploaded: dict[int, tuple[Any, DeviceTensor]] = {}
    strict = compiler.options.strict
    if strict:
        _refuse_tasks(run)
    while run.segment is not None:
        if compiler.check is not None:
            compiler.check()
        segment = run.segment
        executable: Executable | None = segment.compiled
        if executable is None:
            tell = None if on_plan is None or not run.is_whole else _on_program(on_plan, segment)
            executable = compiler.compile(segment.graph, timing, tell)
            segment.compiled = executable
        executable.recorder = compiler.recorder
        kept = _kept_outputs(segment, targets) if targets and executable.is_proven else None
        # Halves that may overflow must be looked at; a segment runs once in a run, so that its memory may be lent.
        lent = () if executable.may_overflow else [i for i, wanted in enumerate(segment.on_host) if not wanted]
        arrays = run.feeds
        given = [uploaded[id(v)][1] if id(v) in uploaded else v for v in arrays]
        outputs, spent = executable.run(given, kept, lent)
        timing.add(spent)
        if segment.following is not None:
            there = zip(arrays, executable.inputs_on_device(given), strict=True)  # of what was uploaded here
            uploaded.update((id(v), (v, t)) for v, t in there if t is not None)
        if kept is None:
            executable, outputs = recover(compiler, executable, segment.graph, run.feeds, outputs, timing)
            executable.is_proven = True
        segment.compiled = executable
        if on_whole is not None and run.is_only:
            on_whole(executable.program, segment)
        compiler.trace(executable.program)
        compiler.ran.append(executable)
        started = clock()
        run.advance(outputs)
        timing.host_s += clock() - started
        if strict:
            _refuse_tasks(run)
    for task in run.tasks_run:
        compiler.trace(_task_report(task))
    return run.outputs


def _no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise AssertionError("whole() refuses tasks that run a body")


def _on_program(on_plan: OnPlan, segment: Segment) -> Callable[[Program], None]:
    return lambda program: on_plan(program, segment)


def _kept_outputs(segment: Segment, targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of the graph's output, for those that nothing else in the model asks for."""
    asked = {n for task in segment.tasks for n in task.inputs}
    if segment.following is not None:
        asked.update(segment.following.incoming)
    found: dict[int, Target] = {}
    shared: set[int] = set()
    for name, source in segment.exports.items():
        if isinstance(source, Output):
            if name in targets and name not in asked:
                found.setdefault(source.index, targets[name])
            else:
                shared.add(source.index)
    return {index: target for index, target in found.items() if index not in shared}


def _refuse_tasks(run: Run) -> None:
    """PlacementError if operators had to run on the host between two segments."""
    hosted = [f"  {task.label}: {task.reason}" for task in run.tasks_run if isinstance(task, NodeTask)]
    if hosted:
        raise PlacementError("strict mode refuses nodes that would run on the host:\n" + "\n".join(hosted))


def _task_report(task: Task) -> NodeReport:
    # A trim only cuts off rows that the device has computed and counted: part of the transfer.
    target = "transfer" if isinstance(task, TrimTask) else "host"
    return task_report(task.label, task.label.split(" ")[0], task.reason, target)


def _arg(info: Any) -> NodeArg:
    dtype = info.dtype if info.kind == "tensor" else None
    held = info.elem if info.kind == "optional" and info.elem is not None else info
    return NodeArg(info.name, info.onnx_type, list(held.shape or ()), dtype, held.shape is None)
