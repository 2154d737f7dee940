"""Stages and segments: a model is imported piece by piece as contents become known.

A Stage is the part of the model that is still to import, with the names of its incoming values. Selecting with values
gives a Segment: a Graph, the host tasks after it, and the next Stage. Segments are cached by dtypes and shapes of the
incoming values, and by the contents of those that an operator needs. With symbolic dimensions one segment serves all
sizes for which its guards hold.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...ir import Array, Graph
from ...ir.symbols import Numbers, compile_numbers, is_symbolic_int
from ..proto.constants import Constants
from .constant_evaluation import evaluate_graph
from .host_tasks import Task
from .model_importer import ModelImporter
from .name_scopes import Item
from .shape_dependent_inputs import ShapeDependentInputs, graph_at
from .symbolic_dims import DynamicDims, InputSignature

PROBE_BYTES = 4096
"""Largest inputs of a probe, in bytes, for which its outputs are cached."""

SEGMENTS_KEPT = 32
"""Number of segments cached by one stage; the least recently used is dropped."""

_EXACT_KEPT = 256
"""Number of exact shapes for which the segment is cached."""


@dataclass(frozen=True)
class GraphOutput:
    """Source of a value: output number `index` of the segment's graph."""

    index: int


@dataclass(frozen=True)
class PassThrough:
    """Source of a value: the incoming value `name`, unchanged."""

    name: str


ExportSource = GraphOutput | PassThrough | Array


@dataclass(eq=False)
class Segment:
    """One piece of the model for known shapes or for a range of sizes.

    graph: to compile and run. inputs: for each graph input, the name of its value. on_host: for each graph output,
    whether the host reads its contents after the segment; other outputs may stay on the device. exports: values that
    the segment adds to the run. tasks: host tasks after the graph. next_stage: the rest of the model, or None.
    shape_inputs: inputs and exports that depend on sizes only. signature: of the incoming values. lengths: of KV caches
    in growable memory after the run. not_in_place: caches that the graph cannot append to in place, with the reason.
    array_refusal: the reason why callers may not see growable caches as arrays, '' if they may.
    Sizes are plain numbers if graph.trace is None; else the segment serves all sizes for which the trace's guards hold,
    including guards added by planning.
    """

    graph: Graph
    inputs: tuple[str, ...]
    on_host: tuple[bool, ...]
    exports: dict[str, ExportSource]
    tasks: tuple[Task, ...]
    next_stage: Stage | None
    shape_inputs: ShapeDependentInputs | None = None
    signature: InputSignature | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    not_in_place: Mapping[str, str] = field(default_factory=dict)
    array_refusal: str = ""
    probe: bool = False  # tiny: computes contents that determine shapes, by the NumPy references
    found: tuple[Any, list[Array]] | None = None  # a probe's last inputs and outputs
    _lengths: Numbers | None = None

    def evaluate(self, inputs: Sequence[Array], sizes: tuple[int, ...] = ()) -> list[Array]:
        """Return a probe's outputs, cached for equal inputs; callers share the arrays."""
        if sum(a.nbytes for a in inputs) > PROBE_BYTES:
            return evaluate_graph(self.graph_at(sizes), inputs)
        key = [sizes, *(contents_key(a) for a in inputs)]
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
            texts = [d.text if is_symbolic_int(d) else str(d) for d in self.lengths.values()]
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


class SegmentTable:
    """LRU cache of segments. Not thread-safe."""

    def __init__(self) -> None:
        self._by_key: dict[Any, list[Segment]] = {}
        self._order: OrderedDict[Segment, Any] = OrderedDict()  # with its key, the last used at the end
        self._exact: OrderedDict[Any, tuple[InputSignature, Segment, int]] = OrderedDict()  # with the guard count then

    def find_exact(self, exact: Any) -> tuple[InputSignature, Segment] | None:
        """Return the segment that served these exact shapes before, if its guards still hold, and the signature."""
        found = self._exact.get(exact)
        if found is None:
            return None
        signature, segment, guards = found
        if guards != segment.guards_recorded:  # guards were added since
            if not segment.holds(signature.sizes):
                return None
            self._exact[exact] = signature, segment, segment.guards_recorded
        self._exact.move_to_end(exact)
        self._order.move_to_end(segment)
        return signature, segment

    def find(self, signature: InputSignature) -> Segment | None:
        """Return the last used segment that serves the signature."""
        for segment in self._by_key.get(signature.key, ()):
            if segment.holds(signature.sizes):
                self._order.move_to_end(segment)
                return segment
        return None

    def add(self, signature: InputSignature, segment: Segment) -> None:
        """Add a segment; drop the least recently used one if there are too many."""
        self._by_key.setdefault(signature.key, []).insert(0, segment)
        self._order[segment] = signature.key
        if len(self._order) > SEGMENTS_KEPT:
            oldest, key = self._order.popitem(last=False)
            self._by_key[key].remove(oldest)
            if not self._by_key[key]:
                del self._by_key[key]
            for exact in [e for e, (_, s, _) in self._exact.items() if s is oldest]:
                del self._exact[exact]

    def add_exact(self, exact: Any, segment: Segment, signature: InputSignature) -> None:
        """Map the exact shapes to `segment`."""
        self._exact[exact] = signature, segment, -1
        if len(self._exact) > _EXACT_KEPT:
            self._exact.popitem(last=False)


@dataclass(eq=False)
class Stage:
    """Remaining part of a model; `incoming` values select a segment, those in `fixed` by contents, others by type.

    constants: of the model; folded: results that depend on these only, filled by every import; known_contents: contents
    found by earlier segments; sequences: element names of known sequences; wanted: model outputs not computed so far;
    dims: the dynamic dimensions of the incoming values.
    """

    importer: ModelImporter
    items: tuple[Item, ...]
    constants: ChainMap[str, Array]
    folded: dict[str, Array]
    known_contents: Mapping[str, Array]
    sequences: Mapping[str, tuple[str, ...]]
    incoming: tuple[str, ...]
    fixed: frozenset[str]
    wanted: tuple[str, ...]
    dims: DynamicDims
    segments: SegmentTable = field(default_factory=SegmentTable)

    @cached_property
    def by_contents(self) -> frozenset[str]:
        """Incoming values whose contents select the segment."""
        return self.fixed | self.dims.contents

    def identity(self, segment: Segment) -> str:
        """A text that names one of the stage's segments among all of the model, in every process."""
        assert segment.signature is not None, "set by the import"
        left = [item.outputs for item in self.items]
        known = [(name, contents_key(array)) for name, array in sorted(self.known_contents.items())]
        more = known, sorted(self.sequences.items()), sorted(self.fixed), self.wanted
        return repr((left, self.incoming, more, segment.signature.key))


def first_stage(importer: ModelImporter, feeds: Iterable[str]) -> Stage:
    """Return the first stage of runs with inputs of these names."""
    names = tuple(feeds)
    key = frozenset(names)
    stage: Stage | None = importer.first_stages.get(key)
    if stage is None:
        constants = importer.constants
        if any(n in constants for n in names):
            constants = ChainMap(*(Constants(m).without(names) for m in constants.maps))
        dims = importer.dynamic_dims()
        made = Stage(importer, importer.items, constants, {}, {}, {}, names, frozenset(), importer.outputs, dims)
        stage = importer.first_stages.setdefault(key, made)
    return stage


def contents_key(array: Array) -> Any:
    """Return a key that is equal for arrays of equal contents."""
    if array.dtype.hasobject:
        return (array.shape, tuple(array.reshape(-1).tolist()))
    raw = array.tobytes()
    return (array.shape, array.dtype, raw if len(raw) <= 256 else hashlib.blake2b(raw).digest())
