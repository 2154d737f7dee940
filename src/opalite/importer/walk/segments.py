"""Stages and segments: a model is imported piece by piece as contents become known.

A Stage is the part of the model that is still to import, with the names of its incoming values. Selecting with values
gives a Segment: a Graph, the host tasks after it, and the next Stage. Segments are cached by dtypes and shapes of the
incoming values, and by the contents of those that an operator needs. With symbolic dimensions one segment serves all
sizes for which its guards hold.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ModelError, OpaliteError
from ...ir.dtype import DType
from ...ir.feeds import is_tensor
from ...ir.graph import Graph, Node, Value
from ...ir.growable_tensor import GrowableTensor
from ...ir.symbols import Numbers, compile_numbers, is_dim
from ..proto.decode import Array
from .constant_evaluation import ancestors, evaluate_graph, is_cheap
from .control_flow import find_control
from .graph_walk import Walk, as_array
from .host_tasks import Task
from .kv_cache_append import append_in_place
from .name_scopes import Item
from .segment_table import SegmentTable
from .shape_dependent_inputs import Given, graph_at
from .symbolic_dims import CLOSED, CLOSED_DIMS, Arrival, Declared, Open, OpenDims, may_hold_sizes

if TYPE_CHECKING:
    from .import_run import ModelImporter

PROBE_BYTES = 4096
"""Largest inputs of a probe, in bytes, for which its outputs are cached."""


@dataclass(frozen=True)
class Output:
    """Source of a value: output number `index` of the segment's graph."""

    index: int


@dataclass(frozen=True)
class Same:
    """Source of a value: the incoming value `name`, unchanged."""

    name: str


ExportSource = Output | Same | Array


@dataclass(eq=False)
class Segment:
    """One piece of the model for known shapes or for a range of sizes.

    graph: to compile and run. inputs: for each graph input, the name of its value. on_host: for each graph output,
    whether the host reads its contents after the segment; other outputs may stay on the device. exports: values that
    the segment adds to the run. tasks: host tasks after the graph. following: the next stage, or None. given: inputs
    and exports that depend on sizes only. arrival: the input signature. lengths: of KV caches in growable memory after
    the run. joined: caches that the graph cannot append to in place, with the reason. Sizes are plain numbers if
    graph.trace is None; else the segment serves all sizes for which the trace's guards hold, including guards added by
    planning.
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
    probe: bool = False  # tiny: computes contents that determine shapes, by the NumPy references
    found: tuple[Any, list[Array]] | None = None  # a probe's last inputs and outputs
    _lengths: Numbers | None = None

    def evaluate(self, inputs: Sequence[Array], sizes: tuple[int, ...] = ()) -> list[Array]:
        """Return a probe's outputs, cached for equal inputs; callers share the arrays."""
        if sum(a.nbytes for a in inputs) > PROBE_BYTES:
            return evaluate_graph(self.graph_at(sizes), inputs)
        key = [sizes, *(_contents_key(a) for a in inputs)]
        found = self.found
        if found is None or found[0] != key:
            found = self.found = key, evaluate_graph(self.graph_at(sizes), inputs)
        return found[1]

    def graph_at(self, sizes: tuple[int, ...]) -> Graph:
        """Return the graph with numbers for its symbols: a copy, or the graph itself if it has no symbols."""
        return self.graph if self.graph.trace is None else graph_at(self.graph, sizes)

    def lengths_at(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """Return `lengths` as plain numbers."""
        if self._lengths is None:
            texts = [d.text if is_dim(d) else str(d) for d in self.lengths.values()]
            self._lengths = compile_numbers(len(sizes), (), texts)
        return dict(zip(self.lengths, self._lengths(*sizes) or (), strict=True))

    @property
    def guards_recorded(self) -> int:
        """Number of guards recorded so far, including those of planning."""
        trace = self.graph.trace
        return 0 if trace is None else trace.recorded

    def holds(self, sizes: tuple[int, ...]) -> bool:
        """Whether the segment serves these sizes."""
        trace = self.graph.trace
        return trace is None or trace.holds(sizes)


@dataclass(eq=False)
class Stage:
    """Remaining part of a model; `incoming` values select a segment, those in `fixed` by contents, others by type.

    constants: of the model; folded: results that depend on these only, filled by every import; carried: contents found
    by earlier segments; sequences: element names of known sequences; wanted: model outputs not computed so far; dims:
    the dynamic dimensions of the incoming values.
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
    def by_contents(self) -> frozenset[str]:
        """Incoming values whose contents select the segment."""
        return self.fixed | self.dims.contents

    def select(
        self, values: Mapping[str, Any], before_import: Callable[[], None] | None = None
    ) -> tuple[Segment, tuple[int, ...]]:
        """Return (segment for `values`, values of its symbols); import the segment if none is cached.

        `before_import` is called before an import. One thread imports at a time; finding a cached segment does not wait
        for it.
        """
        values = {n: values[n] for n in self.incoming}
        by_contents, keys, found_keys = self.by_contents, {}, []
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
                arrival, found = self._find(values, keys, exact)  # another thread may have imported it
                if found is None:
                    found = self._import(values, arrival)
                    with self.owner.lock:
                        self.segments.keep(arrival, found)
                        self.segments.remember(exact, found, arrival)
        return found, arrival.sizes

    def _find(self, values: Mapping[str, Any], keys: Mapping[str, Any], exact: Any) -> tuple[Arrival, Segment | None]:
        """Return (signature of `values`, cached segment or None); afterwards `exact` finds the segment directly."""
        with self.owner.lock:
            arrival = self.dims.arrive(self.incoming, values, keys)
            found = self.segments.find(arrival)
            if found is not None:
                self.segments.remember(exact, found, arrival)
            return arrival, found

    def _import(self, values: Mapping[str, Any], arrival: Arrival) -> Segment:
        walk = Walk(self, values, arrival, find_control)
        for item in self.items:
            walk.visit(item)
        cheap = [n for n in walk.needs if walk.from_outside(n) or is_cheap(ancestors([walk.env[n]]))]
        if cheap:
            return self._probe(walk, cheap)
        if walk.pending and not walk.tasks and len(walk.pending) == len(self.items) and not walk.needs:
            raise OpaliteError(f"the import of '{self.owner.name}' makes no progress at {walk.pending[0].node.label}")
        return self._finish(walk)

    def _probe(self, walk: Walk, needs: Sequence[str]) -> Segment:
        """Make a segment that computes the contents of `needs`; the next stage is this one plus these contents."""
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
        """Return those of `names` whose contents determine shapes and become symbols: small integer tensors."""
        if not self.owner.symbols:
            return set()
        needed = (n for n in names if n in walk.needs or n in self.dims.contents)
        found = ((n, walk.lookup(n)) for n in needed)
        return {n for n, v in found if v is not None and may_hold_sizes(v.dtype, v.shape)}

    def _dims_after(self, walk: Walk, names: Sequence[str]) -> OpenDims:
        """Return the dynamic dimensions of exported values: this segment's symbols and data-dependent sizes."""
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
        """Return Transposes, by output, that move to the stage that reads them: it often reads a few rows only."""
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
    """Return the source of each value in `names`, and the graph outputs (with numbers) for it."""
    outputs = {} if outputs is None else outputs
    exports: dict[str, ExportSource] = {}
    for name in names:
        if name in exports or walk.from_outside(name):
            continue
        value = walk.lookup(name)
        if value is None:  # computed by a later segment or a task
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
    """Return the computation of the shape-dependent inputs, from the nodes that depend on sizes only."""
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
    if isinstance(value, GrowableTensor):
        return value
    if value is None:
        return "none"
    return (tuple(value.shape), value.dtype) if is_tensor(value) else "list"


def _contents_key(array: Array) -> Any:
    if array.dtype.hasobject:
        return (array.shape, tuple(array.reshape(-1).tolist()))
    raw = array.tobytes()
    return (array.shape, array.dtype, raw if len(raw) <= 256 else hashlib.blake2b(raw).digest())
