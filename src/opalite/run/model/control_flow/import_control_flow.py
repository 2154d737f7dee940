"""Imports a model with control flow: every path of a run, for inputs of known types, as the steps of a Flow.

If a condition is known at run time only, both branches and everything after them are imported for each branch, so that
their results may have different shapes. The body of a loop is imported once; its loop-carried values keep their types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....errors import BundleError, OpaliteError
from ....importer import ContentsNeededError, ModelImporter
from ....importer.walk.host_tasks import NodeTask, Task, TrimTask
from ....importer.walk.import_segment import select_segment
from ....importer.walk.loop_body_tasks import Body, LoopTask, ScanPlan, ScanTask
from ....importer.walk.segments import GraphOutput, PassThrough, Segment, Stage, first_stage
from ....ir.dtype import DType
from ....ir.graph import Graph
from ....ir.tensor_type import TensorType
from ....plan.control_flow import Constant, FirstRows, FlowStep, HostNode, Rename, Rows, RunLoop, RunProgram, Switch

MOST_GRAPHS = 64
"""Most graphs of one model: each branch doubles the graphs after it."""

Array = np.ndarray[Any, Any]
Type = TensorType | Array | None
"""Knowledge of a value at import: its type, its contents, or nothing."""
Types = Mapping[str, Type]


@dataclass(frozen=True)
class Imported:
    """Imported control flow: steps of a Flow, and the graphs of their programs."""

    graphs: Sequence[Graph]
    steps: tuple[FlowStep, ...]


def import_flow(importer: ModelImporter, feeds: Mapping[str, TensorType]) -> Imported:
    """The flow of a model for inputs of these types; `importer` makes plain numbers of all sizes.

    BundleError for a model whose shapes depend on data other than conditions of branches.
    """
    finder = _FlowImporter()
    try:
        steps, _ = finder.steps(importer, dict(feeds))
    except ContentsNeededError as e:
        raise BundleError(f"the model cannot be compiled ahead of time: {e}; run the .onnx file") from e
    return Imported(finder.graphs, steps)


class _FlowImporter:
    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self._segments: dict[Segment, int] = {}  # number of its graph
        self._makers: dict[str, str] = {}  # the operator that makes a value whose type depends on data

    def steps(self, importer: ModelImporter, feeds: dict[str, Type]) -> tuple[tuple[FlowStep, ...], list[Types]]:
        """The steps of a model or body, and the types of its outputs after each path."""
        return self._from(first_stage(importer, feeds), dict(feeds), importer.outputs)

    def _from(
        self, stage: Stage | None, values: dict[str, Type], wanted: Sequence[str]
    ) -> tuple[tuple[FlowStep, ...], list[Types]]:
        steps: list[FlowStep] = []
        while stage is not None:
            asked = [n for n in stage.incoming if n in stage.by_contents and isinstance(values[n], TensorType)]
            if asked:
                switch, ends = self._switch(stage, values, asked[0], wanted)
                return (*steps, switch), ends
            for name in stage.incoming:
                if values[name] is None:
                    raise _refusal(f"shapes depend on data at {self._makers.get(name, name)}, which gives '{name}'")
            segment, _ = select_segment(stage, {n: values[n] for n in stage.incoming})
            steps += self._segment(segment, values)
            for task in segment.tasks:
                steps.append(self._task(task, values))
            stage = segment.next_stage
        return tuple(steps), [{name: values[name] for name in wanted}]

    def _switch(
        self, stage: Stage, values: dict[str, Type], name: str, wanted: Sequence[str]
    ) -> tuple[Switch, list[Types]]:
        kind = values[name]
        assert isinstance(kind, TensorType)
        if kind.dtype is not DType.BOOL or kind.count != 1:
            raise _refusal(f"shapes depend on the contents of '{name}'")
        sides = []
        ends: list[Types] = []
        for taken in (True, False):
            known = dict(values) | {name: np.full(kind.shape, taken)}
            side, found = self._from(stage, known, wanted)
            sides.append(side)
            ends += found
        return Switch(name, *sides), ends

    def _segment(self, segment: Segment, values: dict[str, Type]) -> list[FlowStep]:
        steps: list[FlowStep] = []
        outputs = [(n, e.index) for n, e in segment.exports.items() if isinstance(e, GraphOutput)]
        if outputs:
            number = self._segments.get(segment)
            if number is None:
                number = self._segments[segment] = len(self.graphs)
                self.graphs.append(segment.graph)
                if len(self.graphs) > MOST_GRAPHS:
                    raise _refusal(f"its branches take more than {MOST_GRAPHS} programs")
            steps.append(RunProgram(number, segment.inputs, tuple(outputs)))
            for name, index in outputs:
                made = segment.graph.outputs[index].type
                values[name] = TensorType(made.dtype, made.shape)
        for name, found in segment.exports.items():
            if isinstance(found, PassThrough):
                steps.append(Rename(name, found.name))
                values[name] = values[found.name]
            elif not isinstance(found, GraphOutput):
                steps.append(Constant(name, found))
                values[name] = found
        return steps

    def _task(self, task: Task, values: dict[str, Type]) -> FlowStep:
        values.update((name, None) for name in task.outputs if name)
        self._makers.update((name, task.label) for name in task.outputs)
        if isinstance(task, NodeTask):
            node = task.item.node
            ins = tuple(task.item.inputs)
            return HostNode(node.op_type, node.domain, node.version, task.proto, ins, tuple(task.outputs), task.label)
        if isinstance(task, TrimTask):
            return FirstRows(task.outputs[0], *task.inputs)
        try:
            if isinstance(task, LoopTask):
                return self._loop(task, values)
            if isinstance(task, ScanTask) and task.item.node.version >= 9:
                return self._scan(task, values)
        except OpaliteError as e:
            raise e.add_context(f"in {task.label}") from None
        raise _refusal(f"{task.label} runs on the host: {task.reason}")

    def _loop(self, task: LoopTask, values: dict[str, Type]) -> RunLoop:
        names, infos, ends = task.item.inputs, task.body.graph.inputs, task.body.graph.outputs
        states = names[2:]
        counter, condition = ((info.name, len(info.shape or ())) for info in infos[:2])
        given: dict[str, Type] = {
            counter[0]: TensorType(DType.INT64, (1,) * counter[1]),
            condition[0]: np.ones((1,) * condition[1], bool),
        }
        made = self._repeat(task, values, states, [i.name for i in infos[2:]], [e.name for e in ends[1:]], given)
        limit, start = ((*names, "", "")[i] for i in (0, 1))
        return replace(made, limit=limit, start=start, counter=counter, condition=condition, goes=ends[0].name)

    def _scan(self, task: ScanTask, values: dict[str, Type]) -> RunLoop:
        plan, infos, ends = ScanPlan(task.item), task.body.graph.inputs, task.body.graph.outputs
        states, scanned = task.item.inputs[: plan.n_states], task.item.inputs[plan.n_states :]
        shapes = [_typed(values, n).shape for n in scanned]
        axes = plan.input_axes([len(s) for s in shapes])
        length = plan.length(shapes, axes)
        given: dict[str, Type] = {}
        parts = []
        for name, info, axis, back in zip(scanned, infos[plan.n_states :], axes, plan.input_reverse, strict=True):
            whole = _typed(values, name)
            given[info.name] = TensorType(whole.dtype, (*whole.shape[:axis], *whole.shape[axis + 1 :]))
            parts.append((name, info.name, axis, back))
        inner = [i.name for i in infos[: plan.n_states]]
        made = self._repeat(task, values, states, inner, [e.name for e in ends], given)
        count = len(made.rows)
        where = zip(made.rows, plan.output_axes(count), plan.output_reverse(count), strict=True)
        rows = tuple(replace(r, axis=axis, reverse=back) for r, axis, back in where)
        for name, row in zip(task.outputs[len(states) :], rows, strict=False):
            at = row.axis if row.axis >= 0 else row.axis + len(row.shape) + 1
            if name:
                values[name] = TensorType(row.dtype, (*row.shape[:at], length, *row.shape[at:]))
        return replace(made, scanned=tuple(parts), rows=rows)

    def _repeat(
        self,
        task: LoopTask | ScanTask,
        values: dict[str, Type],
        states: Sequence[str],
        inner: Sequence[str],
        outputs: Sequence[str],
        given: dict[str, Type],
    ) -> RunLoop:
        """Import the body of a loop or scan. inner: the body's names of the states; outputs: of states and rows."""
        body: Body = task.body
        types = [_typed(values, name) for name in states]
        feeds = given | {local: values[outer] for local, outer in body.captured} | dict(zip(inner, types, strict=True))
        steps, ends = self.steps(body.importer, feeds)
        for end in ends:
            for name, before in zip(outputs, types, strict=False):
                if (after := _typed(end, name)) != before:
                    raise _refusal(f"an iteration changes the type of '{name}' from {before} to {after}")
            for name in outputs[len(types) :]:
                if _typed(end, name) != _typed(ends[0], name):
                    raise _refusal(f"iterations give '{name}' in different shapes")
        rows = []
        for name in outputs[len(types) :]:
            kind = _typed(ends[0], name)
            rows.append(Rows(name, 0, False, kind.dtype, kind.shape))
        made = (*task.outputs, *("",) * len(outputs))[: len(outputs)]
        values.update((name, kind) for name, kind in zip(made, types, strict=False) if name)
        handed = tuple(zip(states, inner, outputs, strict=False))
        return RunLoop(steps, "", "", ("", 0), ("", 0), "", handed, body.captured, (), tuple(rows), made, task.label)


def _typed(values: Types, name: str) -> TensorType:
    """The type of a value. BundleError if it depends on data."""
    found = values.get(name)
    if isinstance(found, TensorType):
        return found
    if found is None:
        raise _refusal(f"the shape of '{name}' depends on data")
    return TensorType(DType.of(found), found.shape)


def _refusal(why: str) -> BundleError:
    return BundleError(f"the model cannot be compiled ahead of time: {why}; run the .onnx file")
