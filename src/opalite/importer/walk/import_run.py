"""ModelImporter: imports a model for the shapes of each run. ImportRun: iterates over the segments of one run."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from threading import Lock, RLock
from typing import Any

import numpy as np

from ... import knobs
from ...ir.feeds import is_tensor
from ..proto.constants import Constants
from ..proto.decode import Array
from ..proto.functions import FunctionTable
from ..proto.graphdef import GraphDef
from .graph_walk import ContentsNeededError, as_array
from .host_tasks import Runner, Task
from .name_scopes import Item, make_item
from .segments import Output, Same, Segment, Stage
from .symbolic_dims import CLOSED, CLOSED_DIMS, Declared, Open, OpenDims


class ModelImporter:
    """Imports one graph (of a model or of a loop body) for any input shapes."""

    def __init__(
        self,
        graph: GraphDef,
        functions: FunctionTable | None = None,
        constants: Mapping[str, Array] | None = None,
        symbols: bool | None = None,
        body_dims: Mapping[str, Declared] | None = None,
    ) -> None:
        """Initialise an importer; `constants` are captured values of a loop body, by their names in the body.

        symbols: whether dynamic dimensions are symbols; default: OPALITE_SYMBOLS. body_dims: dynamic dimensions of a
        body's inputs; None for a model.
        """
        self.graph = graph
        self.symbols = bool(knobs.get("OPALITE_SYMBOLS")) if symbols is None else symbols
        self._body_dims = body_dims
        self.name = graph.name or "model"
        self.functions = functions or {}
        self.outputs = tuple(v.name for v in graph.outputs)
        self.lock = Lock()  # of the caches
        self.importing = RLock()
        self.separator = _free_separator(graph)
        self._constants: ChainMap[str, Array] = ChainMap(graph.constants, dict(constants or {}))
        self._items = tuple(make_item(node) for node in graph.nodes)
        self._roots: dict[frozenset[str], Stage] = {}
        self._nested: dict[Any, ModelImporter] = {}

    def begin(self, feeds: Mapping[str, Any], runner: Runner, before_import: Callable[[], None] | None = None) -> Run:
        """Start a run; `feeds` holds arrays, lists of arrays (sequences) or None (empty optionals) by input name.

        An array may be any object with `shape` and `dtype`; `__array__` is needed only if a shape depends on its
        contents. `runner` runs loop bodies. `before_import` is called before a segment is imported, which takes long.
        """
        return Run(self, self.root(feeds), feeds, runner, before_import)

    def root(self, feeds: Mapping[str, Any]) -> Stage:
        """Return the first stage of runs with inputs of these names."""
        key = frozenset(feeds)
        root = self._roots.get(key)
        if root is None:
            constants = self._constants
            if any(n in constants for n in feeds):
                constants = ChainMap(*(Constants(m).without(feeds) for m in constants.maps))
            made = Stage(
                self, self._items, constants, {}, {}, {}, tuple(feeds), frozenset(), self.outputs, self._open_dims()
            )
            root = self._roots.setdefault(key, made)
        return root

    def _open_dims(self) -> OpenDims:
        """Return the dynamic dimensions of the inputs."""
        if not self.symbols:
            return CLOSED_DIMS
        if self._body_dims is not None:
            return OpenDims(self._body_dims, frozenset(), learns=True)
        declared: dict[str, Declared] = {}
        for info in self.graph.inputs:
            if info.kind == "tensor" and info.shape is not None:
                declared[info.name] = [CLOSED if isinstance(d, int) else Open(d or "") for d in info.shape]
        return OpenDims(declared, frozenset(), learns=True)

    def nested(
        self, item: Item, body: GraphDef, constants: Mapping[str, Array], dims: Mapping[str, Declared]
    ) -> ModelImporter:
        """Return the importer of a loop body, the same for all shapes of the node; dims: its dynamic dimensions."""
        key = (item.outputs, item.node.op_type, body.name, *constants)
        if key not in self._nested:
            self._nested[key] = ModelImporter(body, self.functions, constants, self.symbols, dims)
        return self._nested[key]


class Run:
    """One run of a model: `segment` is executed next; None after the last, when `outputs` are complete.

    sizes: the values of the segment's symbols, in the order of segment.graph.trace.symbols. tasks_run: the host tasks
    run so far, in order.
    """

    def __init__(
        self,
        importer: ModelImporter,
        root: Stage,
        feeds: Mapping[str, Any],
        runner: Runner,
        before_import: Callable[[], None] | None = None,
    ) -> None:
        self.segment: Segment | None = None
        self.sizes: tuple[int, ...] = ()
        self.tasks_run: dict[Task, None] = {}
        self._importer = importer
        self._values: dict[str, Any] = dict(feeds)
        self._borrowed = set(feeds)  # arrays owned by the caller or by the model
        self._runner = runner
        self._before_import = before_import
        self._absorbed = 0
        self._computed = False  # whether an earlier segment computed something
        self.by_contents: set[str] = set()  # values whose contents selected a segment
        self._enter(root)

    @property
    def is_whole(self) -> bool:
        """Whether the current segment is the whole model, without host tasks."""
        return self.is_only and not self.segment.tasks  # type: ignore[union-attr]

    @property
    def is_only(self) -> bool:
        """Whether the current segment is the only one; host tasks may follow."""
        segment = self.segment
        return segment is not None and not self._absorbed and segment.following is None

    @property
    def is_chosen(self) -> bool:
        """Whether the current segment is all computation of the model for the contents of `by_contents`."""
        segment = self.segment
        return segment is not None and not (self._computed or segment.tasks or segment.following)

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
        return [v.copy() if n in self._borrowed and isinstance(v, np.ndarray) else v for n, v in found]

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
        following = self._absorb(self.segment, outputs)
        self._enter(following)

    def _enter(self, stage: Stage | None) -> None:
        while stage is not None:
            segment, self.sizes = stage.select(self._values, self._before_import)
            self.by_contents |= stage.by_contents
            if segment.given is not None:
                made = segment.given.at(self.sizes)
                self._values.update(made)
                self._borrowed.update(made)
            if segment.probe:
                ins = [as_array(n, self._values[n]) for n in segment.inputs]
                stage = self._absorb(segment, segment.evaluate(ins, self.sizes))
            elif segment.graph.outputs:
                self.segment = segment
                return
            else:
                stage = self._absorb(segment, ())
        self.segment = None
        self.sizes = ()

    def _absorb(self, segment: Segment, outputs: Sequence[Any]) -> Stage | None:
        self._absorbed += 1
        self._computed = self._computed or bool(segment.graph.outputs or segment.tasks)
        values = self._values
        added = {}
        for name, source in segment.exports.items():
            if isinstance(source, Output):
                added[name] = outputs[source.index]
                if segment.probe:
                    self._borrowed.add(name)
            else:
                added[name] = values[source.name] if isinstance(source, Same) else source
                self._borrowed.add(name)
        values.update(added)
        for task in segment.tasks:
            self.tasks_run[task] = None
            for n in task.inputs:
                if is_tensor(values[n]) and not hasattr(values[n], "__array__"):
                    raise ContentsNeededError(f"shapes depend on data at {task.label}, which reads '{n}'")
            results = task.run({n: _for_task(n, values[n]) for n in task.inputs}, self._runner)
            values.update((n, v) for n, v in zip(task.outputs, results, strict=False) if n)
        if segment.following is not None:
            keep = {*segment.following.incoming, *self._importer.outputs}
            self._values = {n: v for n, v in values.items() if n in keep}
        return segment.following


def _for_task(name: str, value: Any) -> Any:
    """Convert array-like values to arrays for a task."""
    return as_array(name, value) if is_tensor(value) else value


def _free_separator(graph: GraphDef) -> str:
    """Return a separator that occurs in no name of the graph; names of inlined graphs contain it."""
    names = [o for node in graph.nodes for o in node.outputs]
    mark = "@"
    while any(mark in n for n in names):
        mark += "@"
    return mark
