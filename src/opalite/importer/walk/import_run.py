"""ImportRun: one run of a model, segment by segment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import Array
from ...ir.feeds import is_tensor
from .host_tasks import Runner, Task
from .import_segment import select_segment
from .model_importer import ModelImporter
from .segments import GraphOutput, PassThrough, Segment, Stage, first_stage
from .symbolic_dims import ContentsNeededError, as_array


@dataclass(frozen=True)
class Selection:
    """Choice of a segment that the model's inputs alone decide: nothing was computed before.

    looked_at: inputs whose contents count; types of inputs decide the rest. known: values that follow from these.
    inputs: names of the model's inputs by their own and other names.
    """

    looked_at: frozenset[str]
    known: Mapping[str, Array]
    inputs: Mapping[str, str]


class ImportRun:
    """One run of a model: `segment` is executed next; None after the last, when `outputs` are complete.

    sizes: the values of the segment's symbols, in the order of segment.graph.trace.symbols. tasks_run: the host tasks
    run so far, in order. probes: the segments that the host has evaluated so far, because what follows depends on them.
    """

    def __init__(
        self,
        importer: ModelImporter,
        feeds: Mapping[str, Any],
        runner: Runner,
        before_import: Callable[[], None] | None = None,
        on_task: Callable[[Task, float, float], None] | None = None,
    ) -> None:
        """Start a run; `feeds` holds arrays, lists of arrays (sequences) or None (empty optionals) by input name.

        An array may be any object with `shape` and `dtype`; `__array__` is needed only if a shape depends on its
        contents. `runner` runs loop bodies. `before_import` is called before a segment is imported, which takes long.
        `on_task` is called after each host task, with the seconds of time.perf_counter() before and after it.
        """
        self.segment: Segment | None = None
        self.stage: Stage | None = None  # of the segment
        self.sizes: tuple[int, ...] = ()
        self.tasks_run: dict[Task, None] = {}
        self.probes: list[Segment] = []
        self._importer = importer
        self._values: dict[str, Any] = dict(feeds)
        self._shared_names = set(feeds)  # arrays owned by the caller or by the model
        self._runner = runner
        self._before_import = before_import
        self._on_task = on_task
        self._segments_done = 0
        self._computed = False  # whether an earlier segment computed something
        self._used_device = False  # whether it was more than a probe
        self._known: set[str] = set()  # values that follow from sizes and from contents of `_looked_at`
        self._looked_at: set[str] = set()  # inputs
        self._inputs = {n: n for n in feeds}  # by their own and other names
        self.by_contents: set[str] = set()  # values whose contents selected a segment
        self._enter(first_stage(importer, feeds))

    @property
    def is_whole_model(self) -> bool:
        """Whether the current segment is the whole model, without host tasks."""
        return self.is_single_segment and not self.segment.tasks  # type: ignore[union-attr]

    @property
    def is_single_segment(self) -> bool:
        """Whether the current segment is the only one; host tasks may follow."""
        segment = self.segment
        return segment is not None and not self._segments_done and segment.next_stage is None

    @property
    def is_whole_for_contents(self) -> bool:
        """Whether the current segment is all computation of the model for the contents of `by_contents`."""
        segment = self.segment
        return segment is not None and not (self._computed or segment.tasks or segment.next_stage)

    @property
    def selection(self) -> Selection | None:
        """The choice of the current segment, if it is all that computes before operators on the host; else None."""
        segment = self.segment
        if segment is None or segment.next_stage is not None or self._used_device:
            return None
        values = self._values
        known = {n: values[n] for n in self._known if n in values}
        return Selection(frozenset(self._looked_at), known, self._inputs)

    @property
    def feeds(self) -> list[Any]:
        """Values of the current segment's graph inputs, in order."""
        assert self.segment is not None
        return [self._values[n] for n in self.segment.inputs]

    @property
    def outputs(self) -> list[Any]:
        """Model outputs in order, after the last segment; the caller may keep and change the arrays."""
        assert self.segment is None
        found = ((n, self._values[n]) for n in self._importer.outputs)
        return [v.copy() if n in self._shared_names and isinstance(v, np.ndarray) else v for n, v in found]

    def replace(self, arrays: Mapping[int, Array]) -> None:
        """Replace values by `arrays`; the keys are the ids of the objects passed to `advance`."""
        for name, value in self._values.items():
            if id(value) in arrays:
                self._values[name] = arrays[id(value)]

    def advance(self, outputs: Sequence[Any]) -> None:
        """Take the outputs of the current segment's graph, run the tasks after it and go to the next segment.

        An output may be any object with `shape` and `dtype`; it needs `__array__` if `segment.on_host` is true for it.
        """
        assert self.segment is not None
        following = self._finish_segment(self.segment, outputs)
        self._enter(following)

    def _enter(self, stage: Stage | None) -> None:
        while stage is not None:
            segment, self.sizes = select_segment(stage, self._values, self._before_import)
            self.by_contents |= stage.by_contents
            self._look_at(stage.by_contents)
            if segment.shape_inputs is not None:
                made = segment.shape_inputs.at(self.sizes)
                self._values.update(made)
                self._shared_names.update(made)
                self._known.update(made)
            if segment.probe:
                self.probes.append(segment)
                self._look_at(segment.inputs)
                ins = [as_array(n, self._values[n]) for n in segment.inputs]
                stage = self._finish_segment(segment, segment.evaluate(ins, self.sizes))
            elif segment.graph.outputs:
                self.segment, self.stage = segment, stage
                return
            else:
                stage = self._finish_segment(segment, ())
        self.segment = None
        self.sizes = ()

    def _look_at(self, names: Iterable[str]) -> None:
        """Note that the contents of values select what follows."""
        self._looked_at.update(self._inputs[n] for n in names if n in self._inputs)

    def _finish_segment(self, segment: Segment, outputs: Sequence[Any]) -> Stage | None:
        self._segments_done += 1
        self._computed = self._computed or bool(segment.graph.outputs or segment.tasks)
        self._used_device = self._used_device or bool(segment.tasks or (segment.graph.outputs and not segment.probe))
        values = self._values
        added = {}
        for name, source in segment.exports.items():
            if isinstance(source, GraphOutput):
                added[name] = outputs[source.index]
                if segment.probe:
                    self._shared_names.add(name)
                    self._known.add(name)
            else:
                passed = source.name if isinstance(source, PassThrough) else ""
                added[name] = values[passed] if passed else source
                self._shared_names.add(name)
                if passed in self._inputs:
                    self._inputs[name] = self._inputs[passed]
                elif not passed or passed in self._known:
                    self._known.add(name)
        values.update(added)
        for task in segment.tasks:
            self.tasks_run[task] = None
            for n in task.inputs:
                if is_tensor(values[n]) and not hasattr(values[n], "__array__"):
                    raise ContentsNeededError(f"shapes depend on data at {task.label}, which reads '{n}'")
            begin = time.perf_counter()
            results = task.run({n: _for_task(n, values[n]) for n in task.inputs}, self._runner)
            if self._on_task is not None:
                self._on_task(task, begin, time.perf_counter())
            values.update((n, v) for n, v in zip(task.outputs, results, strict=False) if n)
        if segment.next_stage is not None:
            keep = {*segment.next_stage.incoming, *self._importer.outputs}
            self._values = {n: v for n, v in values.items() if n in keep}
        return segment.next_stage


def _for_task(name: str, value: Any) -> Any:
    """Convert array-like values to arrays for a task."""
    return as_array(name, value) if is_tensor(value) else value
