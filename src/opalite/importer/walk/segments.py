"""Stages and segments: how a model is imported piece by piece as values become known.

Longer than 400 lines: stages, their segments and the run that goes through them are one mechanism.

A Stage is what is left to import before the shapes of its incoming values are known. Selecting it with values gives a
Segment: a Graph, the tasks that follow it on the host, and the next Stage. Segments are kept by the dtypes and shapes
of the incoming values, and by the contents of those that something asked for. Open dimensions are symbols: a segment
serves all sizes for which its guards hold.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock, RLock
from typing import Any

import numpy as np

from ... import knobs
from ...errors import ModelError, OpaliteError
from ...ir.dtype import DType
from ...ir.feeds import is_tensor
from ...ir.graph import Graph, Node, Value
from ...ir.reserved import Reserved
from ...ir.symbols import Numbers, compile_numbers, is_dim
from ..proto.constants import Constants
from ..proto.decode import Array
from ..proto.functions import FunctionTable
from ..proto.graphdef import GraphDef
from .controlflow import CONTROL
from .evaluate import ancestors, evaluate_graph, is_cheap
from .given import Given, graph_at
from .open_dims import CLOSED, CLOSED_DIMS, Arrival, Declared, Open, OpenDims, may_hold_sizes
from .reserve import append_in_place
from .scopes import Item, make_item
from .segment_table import SegmentTable
from .tasks import Runner, Task
from .walker import ContentsNeededError, Walk, as_array

PROBE_BYTES = 4096
"""Inputs of a probe up to which its outputs are kept for the next run."""


@dataclass(frozen=True)
class Output:
    """A value that the segment's graph computes: its output number `index`."""

    index: int


@dataclass(frozen=True)
class Same:
    """A value that arrived under the name `name`."""

    name: str


ExportSource = Output | Same | Array


@dataclass(eq=False)
class Segment:
    """One piece of the model for known shapes.

    graph: what to compile and run. inputs: the names of graph.inputs in the run's values. on_host: for each graph
    output, whether its contents are wanted on the host after the segment; others may stay on the device.
    exports: what the segment adds to the run's values. tasks: what runs on the host after the graph.
    following: the rest of the model, or None. given: what follows from the sizes alone, for inputs and exports.
    arrival: what it was imported for. lengths: of inputs in reserved memory, after the run that appends to them;
    joined: those to which the graph does not append, and why.
    Its sizes are plain numbers where graph.trace is None; else it serves all for which the trace's guards hold, those
    that planning adds included.
    """

    graph: Graph
    inputs: tuple[str, ...]
    on_host: tuple[bool, ...]
    exports: dict[str, ExportSource]
    tasks: tuple[Task, ...]
    following: Stage | None
    given: Given | None = None
    arrival: Arrival | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    joined: Mapping[str, str] = field(default_factory=dict)
    probe: bool = False  # tiny: finds contents that decide shapes, by the NumPy references
    found: tuple[Any, list[Array]] | None = None  # a probe's last inputs, by contents, and what they gave
    _lengths: Numbers | None = None

    def evaluate(self, inputs: Sequence[Array], sizes: tuple[int, ...] = ()) -> list[Array]:
        """A probe's outputs, which others hold too. Runs often differ in nothing that decides shapes."""
        if sum(a.nbytes for a in inputs) > PROBE_BYTES:
            return evaluate_graph(self.graph_at(sizes), inputs)
        key = [sizes, *(_contents_key(a) for a in inputs)]
        found = self.found
        if found is None or found[0] != key:
            found = self.found = key, evaluate_graph(self.graph_at(sizes), inputs)
        return found[1]

    def graph_at(self, sizes: tuple[int, ...]) -> Graph:
        """The graph with plain numbers for its symbols: itself if it has none, else a copy."""
        return self.graph if self.graph.trace is None else graph_at(self.graph, sizes)

    def lengths_at(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """`lengths` as plain numbers."""
        if self._lengths is None:
            texts = [d.text if is_dim(d) else str(d) for d in self.lengths.values()]
            self._lengths = compile_numbers(len(sizes), (), texts)
        return dict(zip(self.lengths, self._lengths(*sizes) or (), strict=True))

    @property
    def guards_recorded(self) -> int:
        """How often a guard was recorded, by planning too."""
        trace = self.graph.trace
        return 0 if trace is None else trace.recorded

    def holds(self, sizes: tuple[int, ...]) -> bool:
        """Whether the segment serves these sizes."""
        trace = self.graph.trace
        return trace is None or trace.holds(sizes)


@dataclass(eq=False)
class Stage:
    """What is left of a model. `incoming` values select the segment: `fixed` ones by contents, others by type.

    constants: what the model itself holds; folded: what follows from that alone, filled by every import; carried: what
    earlier segments found out; sequences: names of the elements of those that are known; wanted: model outputs not made
    yet; dims: which dimensions of the incoming values are open.
    """

    owner: ModelImporter
    items: tuple[Item, ...]
    constants: ChainMap[str, Array]
    folded: dict[str, Array]
    carried: Mapping[str, Array]
    sequences: Mapping[str, tuple[str, ...]]
    incoming: tuple[str, ...]
    fixed: frozenset[str]
    wanted: tuple[str, ...]
    dims: OpenDims
    segments: SegmentTable = field(default_factory=SegmentTable)

    @cached_property
    def _by_contents(self) -> frozenset[str]:
        """Incoming values of which more than the type counts."""
        return self.fixed | self.dims.contents

    def select(
        self, values: Mapping[str, Any], before_import: Callable[[], None] | None = None
    ) -> tuple[Segment, tuple[int, ...]]:
        """The segment for `values`, imported now if none that is kept serves them, and the values of its symbols.
        `before_import` is called then.

        One thread imports at a time; nobody waits for it to find a segment that is kept.
        """
        values = {n: values[n] for n in self.incoming}
        by_contents, keys, found_keys = self._by_contents, {}, []
        for n, v in values.items():
            if n in by_contents and is_tensor(v):
                values[n] = array = as_array(n, v)
                keys[n] = key = _contents_key(array)
            else:
                key = _type_key(v)
            found_keys.append(key)
        exact = tuple(found_keys)
        with self.owner.lock:
            known = self.segments.known(exact)
        if known is not None:
            arrival, segment = known
            return segment, arrival.sizes
        sizes = [n for n in keys if n in self.dims.contents and _are_sizes(values[n])]
        keys = {n: key for n, key in keys.items() if n not in sizes}
        arrival, found = self._find(values, keys, exact)
        if found is None:
            if before_import is not None:
                before_import()
            with self.owner.importing:
                arrival, found = self._find(values, keys, exact)  # another thread may have made it meanwhile
                if found is None:
                    found = self._import(values, arrival)
                    with self.owner.lock:
                        self.segments.keep(arrival, found)
                        self.segments.remember(exact, found, arrival)
        return found, arrival.sizes

    def _find(self, values: Mapping[str, Any], keys: Mapping[str, Any], exact: Any) -> tuple[Arrival, Segment | None]:
        """What arrives, and the segment that serves it, if there is one; `exact` finds it at once from now on."""
        with self.owner.lock:
            arrival = self.dims.arrive(self.incoming, values, keys)
            found = self.segments.find(arrival)
            if found is not None:
                self.segments.remember(exact, found, arrival)
            return arrival, found

    def _import(self, values: Mapping[str, Any], arrival: Arrival) -> Segment:
        walk = Walk(self, values, arrival, CONTROL)
        for item in self.items:
            walk.visit(item)
        cheap = [n for n in walk.needs if walk.from_outside(n) or is_cheap(ancestors([walk.env[n]]))]
        if cheap:
            return self._probe(walk, cheap)
        if walk.pending and not walk.tasks and len(walk.pending) == len(self.items) and not walk.needs:
            raise OpaliteError(f"the import of '{self.owner.name}' makes no progress at {walk.pending[0].node.label}")
        return self._finish(walk)

    def _probe(self, walk: Walk, needs: Sequence[str]) -> Segment:
        """A segment that finds the contents of `needs`; the stage after it is this one, knowing them."""
        exports, outputs = _collect(walk, needs)
        sizes = self._sizes_of(walk, needs)
        following = replace(
            self,
            incoming=tuple(dict.fromkeys((*self.incoming, *needs))),
            fixed=self.fixed.union(set(needs) - sizes),
            dims=self.dims.with_contents(sizes) if sizes else self.dims,
            segments=SegmentTable(),
        )
        return _make_segment(walk, exports, outputs, needs, (), following, probe=True)

    def _finish(self, walk: Walk) -> Segment:
        unpacked = [n for n in self.wanted if n in walk.sequences and not walk.pack(n)]
        later = [n for item in walk.pending for n in item.reads]
        later += unpacked
        known_sequences = {n: walk.sequences[n] for n in later if n in walk.sequences}
        later += [n for elements in known_sequences.values() for n in elements]
        inner = [n for task in walk.tasks for n in task.inputs]
        exports, outputs = _collect(walk, [*self.wanted, *inner])
        for name in self.wanted:
            made = name in exports or name in walk.deferred or name in walk.sequences or walk.from_outside(name)
            if not made:
                raise ModelError(f"nothing gives the output '{name}' of '{self.owner.name}' a value")
        carried = {n: walk.carried[n] for n in later if n in walk.carried}
        for name in dict.fromkeys((*later, *walk.needs)):
            value = walk.env.get(name)
            if value is not None and value.is_const and not walk.is_static(name) and value.data is not None:
                carried[name] = value.data
        rest = [n for n in (*later, *walk.needs) if n not in carried and not walk.is_static(n)]
        turns = self._turned_later(walk, rest, exports)
        rest = list(dict.fromkeys(turns[n].inputs[0] if n in turns else n for n in rest))
        more, outputs = _collect(walk, rest, outputs)
        following = None
        if walk.pending:
            known = walk.late | exports.keys() | more.keys() | set(self.incoming)
            following = replace(
                self,
                items=(*turns.values(), *walk.pending),
                constants=walk.constants,
                carried=carried,
                sequences=known_sequences,
                incoming=tuple(n for n in dict.fromkeys(rest) if n in known),
                fixed=frozenset(n for n in rest if n in walk.needs or n in self.fixed) - self._sizes_of(walk, rest),
                wanted=tuple(n for n in self.wanted if n in unpacked or n in walk.deferred - walk.late),
                dims=self._dims_after(walk, rest),
                segments=SegmentTable(),
            )
        host = [*self.wanted, *inner, *walk.needs]
        return _make_segment(walk, {**more, **exports}, outputs, host, tuple(walk.tasks), following)

    def _sizes_of(self, walk: Walk, names: Iterable[str]) -> set[str]:
        """Those of `names` whose contents decide shapes, and whose elements are symbols: a few whole numbers."""
        if not self.owner.symbols:
            return set()
        needed = (n for n in names if n in walk.needs or n in self.dims.contents)
        found = ((n, walk.lookup(n)) for n in needed)
        return {n for n, v in found if v is not None and may_hold_sizes(v.dtype, v.shape)}

    def _dims_after(self, walk: Walk, names: Sequence[str]) -> OpenDims:
        """The open dimensions of what this segment hands on: those that are symbols in it, and those of tasks' results
        that depend on data."""
        if not self.owner.symbols:
            return CLOSED_DIMS
        declared: dict[str, Declared] = {}
        contents = self._sizes_of(walk, names)
        for n in names:
            value = walk.env.get(n) or walk.lookup(n)
            if value is not None:
                declared[n] = [Open(d.text) if is_dim(d) else CLOSED for d in value.shape]
                if walk.builder.sized.get(value) is not None:
                    contents.add(n)
        for task in walk.tasks:
            declared.update({n: dims for n, dims in task.open_dims(walk.lookup).items() if n in names})
        return OpenDims(declared, frozenset(contents), learns=True)

    def _turned_later(self, walk: Walk, names: Sequence[str], exports: Mapping[str, ExportSource]) -> dict[str, Item]:
        """Transposes that move to the stage that reads them, by output: it often takes a few rows of their results."""
        if not walk.pending:
            return {}
        found = {i.outputs[0]: i for i in self.items if i.node.op_type == "Transpose" and not i.node.domain}
        return {
            n: item
            for n in names
            if (item := found.get(n)) is not None
            and n not in exports
            and n not in walk.needs
            and item.inputs[0] not in walk.deferred
            and not walk.is_static(item.inputs[0])
            and item.inputs[0] not in walk.carried
        }


def _collect(
    walk: Walk, names: Sequence[str], outputs: dict[Value, int] | None = None
) -> tuple[dict[str, ExportSource], dict[Value, int]]:
    """Where the values called `names` come from, and the graph outputs (by number) that this takes."""
    outputs = {} if outputs is None else outputs
    exports: dict[str, ExportSource] = {}
    for name in names:
        if name in exports or walk.from_outside(name):
            continue
        value = walk.lookup(name)
        if value is None:  # a later segment or a task makes it
            continue
        if value.data is not None:
            exports[name] = value.data
        elif value in walk.sources:
            exports[name] = Same(walk.sources[value])
        elif value in walk.builder.sized:
            exports[name] = Same(walk.give(value))
        else:
            exports[name] = Output(outputs.setdefault(value, len(outputs)))
    return exports, outputs


def _make_segment(
    walk: Walk,
    exports: dict[str, ExportSource],
    outputs: Mapping[Value, int],
    host_names: Sequence[str],
    tasks: tuple[Task, ...],
    following: Stage | None,
    probe: bool = False,
) -> Segment:
    graph, sized = walk.builder.graph, walk.builder.sized
    graph.outputs = list(outputs)
    if sized:
        made = [n for n in graph.nodes if n.outputs[0] in sized]
        graph.nodes = [n for n in graph.nodes if n.outputs[0] not in sized]
    graph.prune()
    read = {v for node in graph.nodes for v in node.inputs}
    graph.inputs = [v for v in graph.inputs if v in read]
    lengths: dict[str, int] = {}
    joined: dict[str, str] = {}
    if reserved := walk.arrival.reserved:
        numbers = {n: e.index for n, e in exports.items() if isinstance(e, Output)}
        lengths, joined = append_in_place(walk, graph, reserved, numbers)
    names = [walk.sources[v] for v in graph.inputs]
    given = None
    if sized:
        for v in dict.fromkeys(v for node in graph.nodes for v in node.inputs if v in sized):
            names.append(walk.give(v))
            graph.inputs.append(v)
            v.producer = None
        given = _make_given(walk, made)
    if walk.builder.trace.symbols:
        graph.trace = walk.builder.trace
        graph.trace.node = ""
    host = {e.index for n in host_names if isinstance(e := exports.get(n), Output)}
    on_host = tuple(i in host for i in range(len(outputs)))
    return Segment(graph, tuple(names), on_host, exports, tasks, following, given, walk.arrival, lengths, joined, probe)


def _make_given(walk: Walk, made: Sequence[Node]) -> Given | None:
    """What computes the values that the walk gives, of the nodes that sizes alone decide."""
    wanted = {name: value for value, name in walk.given.items()}
    if not wanted:
        return None
    needed = set(wanted.values())
    nodes = []
    for node in reversed(made):
        if any(v in needed for v in node.outputs):
            nodes.append(node)
            needed.update(v for v in node.inputs if v is not None)
    leaves = {v: a for v, a in walk.builder.sized.items() if a is not None and v in needed}
    return Given(walk.builder.trace, leaves, nodes[::-1], wanted)


def _are_sizes(array: Array) -> bool:
    return array.dtype.kind in "iu" and may_hold_sizes(DType.of(array), array.shape)


def _type_key(value: Any) -> Any:
    if type(value) is np.ndarray:
        return value.shape, value.dtype
    if isinstance(value, Reserved):
        return value
    if value is None:
        return "none"
    return (tuple(value.shape), value.dtype) if is_tensor(value) else "list"


def _contents_key(array: Array) -> Any:
    if array.dtype.hasobject:
        return (array.shape, tuple(array.reshape(-1).tolist()))
    raw = array.tobytes()
    return (array.shape, array.dtype, raw if len(raw) <= 256 else hashlib.blake2b(raw).digest())


class ModelImporter:
    """Imports one graph (a model's, or a loop's body) for whatever shapes arrive."""

    def __init__(
        self,
        graph: GraphDef,
        functions: FunctionTable | None = None,
        constants: Mapping[str, Array] | None = None,
        symbols: bool | None = None,
        body_dims: Mapping[str, Declared] | None = None,
    ) -> None:
        """`constants` are captured values of a body, by the names it uses for them.

        symbols: whether open dimensions are symbols; by default as OPALITE_SYMBOLS says. body_dims: of a body, which
        dimensions of what it is given are known to be open; None for a model.
        """
        self.graph = graph
        self.symbols = bool(knobs.get("OPALITE_SYMBOLS")) if symbols is None else symbols
        self._body_dims = body_dims
        self.name = graph.name or "model"
        self.functions = functions or {}
        self.outputs = tuple(v.name for v in graph.outputs)
        self.lock = Lock()  # of what is kept
        self.importing = RLock()
        self.separator = _free_separator(graph)
        self._constants: ChainMap[str, Array] = ChainMap(graph.constants, dict(constants or {}))
        self._items = tuple(make_item(node) for node in graph.nodes)
        self._roots: dict[frozenset[str], Stage] = {}
        self._nested: dict[Any, ModelImporter] = {}

    def begin(self, feeds: Mapping[str, Any], runner: Runner, before_import: Callable[[], None] | None = None) -> Run:
        """Start one run. `feeds` holds arrays, lists of arrays (sequences) or None (empty optionals) by input name.

        An array may be anything with `shape` and `dtype`; one without `__array__` serves as long as no shape depends on
        its contents. `runner` runs the bodies of loops. `before_import` is called before a segment is imported, which
        takes long.
        """
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
        return Run(self, root, feeds, runner, before_import)

    def _open_dims(self) -> OpenDims:
        """Which dimensions the model leaves open; a body's others are what it is called with."""
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
        """The importer of a body; the same one for every shape that the item is imported for. dims: which are open of
        what it is given."""
        key = (item.outputs, item.node.op_type, *constants)
        if key not in self._nested:
            self._nested[key] = ModelImporter(body, self.functions, constants, self.symbols, dims)
        return self._nested[key]


class Run:
    """One run of a model: `segment` is the one to execute now, None once `outputs` are complete.

    sizes: the values of its symbols, in the order of segment.graph.trace.symbols. tasks_run: what has run on the host
    so far, in order.
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
        self._borrowed = set(feeds)  # names of arrays that are the caller's or the model's own
        self._runner = runner
        self._before_import = before_import
        self._absorbed = 0
        self._computed = False  # by segments before the present one
        self.by_contents: set[str] = set()  # values of which more than the type has chosen segments
        self._enter(root)

    @property
    def is_whole(self) -> bool:
        """Whether the present segment is the whole model: nothing came before it, and nothing follows."""
        return self.is_only and not self.segment.tasks  # type: ignore[union-attr]

    @property
    def is_only(self) -> bool:
        """Whether nothing came before the present segment, and at most the host has work after it."""
        segment = self.segment
        return segment is not None and not self._absorbed and segment.following is None

    @property
    def is_chosen(self) -> bool:
        """Whether the present segment is the whole model for the contents of `by_contents`: before it nothing was
        computed."""
        segment = self.segment
        return segment is not None and not (self._computed or segment.tasks or segment.following)

    @property
    def feeds(self) -> list[Any]:
        """Values of the present segment's graph inputs, in order."""
        assert self.segment is not None
        return [self._values[n] for n in self.segment.inputs]

    @property
    def outputs(self) -> list[Any]:
        """The model's outputs in order, after the last segment; arrays that the caller may keep and change."""
        assert self.segment is None
        found = ((n, self._values[n]) for n in self._importer.outputs)
        return [v.copy() if n in self._borrowed and isinstance(v, np.ndarray) else v for n, v in found]

    def replace(self, arrays: Mapping[int, Array]) -> None:
        """Take `arrays` in place of values that outputs were handed in for, by the identity of those."""
        for name, value in self._values.items():
            if id(value) in arrays:
                self._values[name] = arrays[id(value)]

    def advance(self, outputs: Sequence[Any]) -> None:
        """Hand in the outputs of the present segment's graph: run the tasks after it and go to the next segment.

        An output may be anything with `shape` and `dtype`, and `__array__` where the segment says `on_host`.
        """
        assert self.segment is not None
        following = self._absorb(self.segment, outputs)
        self._enter(following)

    def _enter(self, stage: Stage | None) -> None:
        while stage is not None:
            segment, self.sizes = stage.select(self._values, self._before_import)
            self.by_contents |= stage._by_contents
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
    """A value as tasks take it: what stands for an array becomes one."""
    return as_array(name, value) if is_tensor(value) else value


def _free_separator(graph: GraphDef) -> str:
    """A mark that no name of the graph contains, to make names of inlined graphs from."""
    names = [o for node in graph.nodes for o in node.outputs]
    mark = "@"
    while any(mark in n for n in names):
        mark += "@"
    return mark
