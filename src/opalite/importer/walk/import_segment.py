"""Import of segments: finds the segment of a stage for given values, or imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import ModelError, OpaliteError
from ...ir import Array, DType, Node, Value
from ...ir.feeds import is_tensor
from ...ir.growable_tensor import GrowableTensor
from .constant_evaluation import ancestors, is_cheap
from .control_flow import find_control
from .graph_walk import GraphWalk
from .host_tasks import Task
from .kv_cache_append import append_in_place
from .name_scopes import Item
from .segments import ExportSource, GraphOutput, PassThrough, Segment, SegmentTable, Stage, contents_key
from .shape_dependent_inputs import ShapeDependentInputs
from .symbolic_dims import ALL_STATIC, DimSpec, DynamicDims, InputSignature, as_array, may_hold_sizes, symbolic_dims


def select_segment(
    stage: Stage, values: Mapping[str, Any], before_import: Callable[[], None] | None = None
) -> tuple[Segment, tuple[int, ...]]:
    """Return (segment for `values`, values of its symbols); import the segment if none is cached.

    `before_import` is called before an import. One thread imports at a time; finding a cached segment does not wait
    for it.
    """
    values = {n: values[n] for n in stage.incoming}
    by_contents, keys, found_keys = stage.by_contents, {}, []
    for n, v in values.items():
        if n in by_contents and is_tensor(v):
            values[n] = array = as_array(n, v)
            keys[n] = key = contents_key(array)
        else:
            key = _type_key(v)
        found_keys.append(key)
    exact = tuple(found_keys)
    with stage.importer.lock:
        known = stage.segments.find_exact(exact)
    if known is not None:
        signature, segment = known
        return segment, signature.sizes
    sizes = [n for n in keys if n in stage.dims.contents and _are_sizes(values[n])]
    keys = {n: key for n, key in keys.items() if n not in sizes}
    signature, found = _find(stage, values, keys, exact)
    if found is None:
        if before_import is not None:
            before_import()
        with stage.importer.importing:
            signature, found = _find(stage, values, keys, exact)  # another thread may have imported it
            if found is None:
                found = _import(stage, values, signature)
                with stage.importer.lock:
                    stage.segments.add(signature, found)
                    stage.segments.add_exact(exact, found, signature)
    return found, signature.sizes


def _find(
    stage: Stage, values: Mapping[str, Any], keys: Mapping[str, Any], exact: Any
) -> tuple[InputSignature, Segment | None]:
    """Return (signature of `values`, cached segment or None); afterwards `exact` finds the segment directly."""
    with stage.importer.lock:
        signature = stage.dims.signature_of(stage.incoming, values, keys)
        found = stage.segments.find(signature)
        if found is not None:
            stage.segments.add_exact(exact, found, signature)
        return signature, found


def _import(stage: Stage, values: Mapping[str, Any], signature: InputSignature) -> Segment:
    walk = GraphWalk(stage, values, signature, find_control)
    for item in stage.items:
        walk.visit(item)
    cheap = [n for n in walk.needed_contents if walk.is_incoming(n) or is_cheap(ancestors([walk.env[n]]))]
    if cheap:
        return _probe(stage, walk, cheap)
    if walk.pending and not walk.tasks and len(walk.pending) == len(stage.items) and not walk.needed_contents:
        raise OpaliteError(f"the import of '{stage.importer.name}' makes no progress at {walk.pending[0].node.label}")
    return _finish(stage, walk)


def _probe(stage: Stage, walk: GraphWalk, needs: Sequence[str]) -> Segment:
    """Make a segment that computes the contents of `needs`; the next stage is this one plus these contents."""
    exports, outputs = _collect(walk, needs)
    sizes = _sizes_of(stage, walk, needs)
    next_stage = replace(
        stage,
        incoming=tuple(dict.fromkeys((*stage.incoming, *needs))),
        fixed=stage.fixed.union(set(needs) - sizes),
        dims=stage.dims.with_contents(sizes) if sizes else stage.dims,
        segments=SegmentTable(),
    )
    return _make_segment(walk, exports, outputs, needs, (), next_stage, probe=True)


def _finish(stage: Stage, walk: GraphWalk) -> Segment:
    unpacked = [n for n in stage.wanted if n in walk.sequences and not walk.pack_sequence(n)]
    later = [n for item in walk.pending for n in item.reads]
    later += unpacked
    known_sequences = {n: walk.sequences[n] for n in later if n in walk.sequences}
    later += [n for elements in known_sequences.values() for n in elements]
    inner = [n for task in walk.tasks for n in task.inputs]
    exports, outputs = _collect(walk, [*stage.wanted, *inner])
    for name in stage.wanted:
        made = name in exports or name in walk.deferred or name in walk.sequences or walk.is_incoming(name)
        if not made:
            raise ModelError(f"nothing gives the output '{name}' of '{stage.importer.name}' a value")
    known_contents = {n: walk.known_contents[n] for n in later if n in walk.known_contents}
    for name in dict.fromkeys((*later, *walk.needed_contents)):
        value = walk.env.get(name)
        if value is not None and value.is_const and not walk.is_static(name) and value.data is not None:
            known_contents[name] = value.data
    rest = [n for n in (*later, *walk.needed_contents) if n not in known_contents and not walk.is_static(n)]
    later_transposes = _deferred_transposes(stage, walk, rest, exports)
    rest = list(dict.fromkeys(later_transposes[n].inputs[0] if n in later_transposes else n for n in rest))
    more, outputs = _collect(walk, rest, outputs)
    next_stage = None
    if walk.pending:
        known = walk.made_by_tasks | exports.keys() | more.keys() | set(stage.incoming)
        next_stage = replace(
            stage,
            items=(*later_transposes.values(), *walk.pending),
            constants=walk.constants,
            known_contents=known_contents,
            sequences=known_sequences,
            incoming=tuple(n for n in dict.fromkeys(rest) if n in known),
            fixed=frozenset(n for n in rest if n in walk.needed_contents or n in stage.fixed)
            - _sizes_of(stage, walk, rest),
            wanted=tuple(n for n in stage.wanted if n in unpacked or n in walk.deferred - walk.made_by_tasks),
            dims=_dims_after(stage, walk, rest),
            segments=SegmentTable(),
        )
    host = [*stage.wanted, *inner, *walk.needed_contents]
    return _make_segment(walk, {**more, **exports}, outputs, host, tuple(walk.tasks), next_stage)


def _sizes_of(stage: Stage, walk: GraphWalk, names: Iterable[str]) -> set[str]:
    """Return those of `names` whose contents determine shapes and become symbols: small integer tensors."""
    if not stage.importer.symbols:
        return set()
    needed = (n for n in names if n in walk.needed_contents or n in stage.dims.contents)
    found = ((n, walk.lookup(n)) for n in needed)
    return {n for n, v in found if v is not None and may_hold_sizes(v.dtype, v.shape)}


def _dims_after(stage: Stage, walk: GraphWalk, names: Sequence[str]) -> DynamicDims:
    """Return the dynamic dimensions of exported values: this segment's symbols and data-dependent sizes."""
    if not stage.importer.symbols:
        return ALL_STATIC
    declared: dict[str, DimSpec] = {}
    contents = _sizes_of(stage, walk, names)
    for n in names:
        value = walk.env.get(n) or walk.lookup(n)
        if value is not None:
            declared[n] = symbolic_dims(value.shape)
            if walk.builder.shape_tensors.get(value) is not None:
                contents.add(n)
    for task in walk.tasks:
        declared.update({n: dims for n, dims in task.dynamic_dims(walk.lookup).items() if n in names})
    return DynamicDims(declared, frozenset(contents), automatic=True)


def _deferred_transposes(
    stage: Stage, walk: GraphWalk, names: Sequence[str], exports: Mapping[str, ExportSource]
) -> dict[str, Item]:
    """Return Transposes, by output, that move to the stage that reads them: it often reads a few rows only."""
    if not walk.pending:
        return {}
    found = {i.outputs[0]: i for i in stage.items if i.node.op_type == "Transpose" and not i.node.domain}
    return {
        n: item
        for n in names
        if (item := found.get(n)) is not None
        and n not in exports
        and n not in walk.needed_contents
        and item.inputs[0] not in walk.deferred
        and not walk.is_static(item.inputs[0])
        and item.inputs[0] not in walk.known_contents
    }


def _collect(
    walk: GraphWalk, names: Sequence[str], outputs: dict[Value, int] | None = None
) -> tuple[dict[str, ExportSource], dict[Value, int]]:
    """Return the source of each value in `names`, and the graph outputs (with numbers) for it."""
    outputs = {} if outputs is None else outputs
    exports: dict[str, ExportSource] = {}
    for name in names:
        if name in exports or walk.is_incoming(name):
            continue
        value = walk.lookup(name)
        if value is None:  # computed by a later segment or a task
            continue
        if value.data is not None:
            exports[name] = value.data
        elif value in walk.sources:
            exports[name] = PassThrough(walk.sources[value])
        elif value in walk.builder.shape_tensors:
            exports[name] = PassThrough(walk.shape_input_name(value))
        else:
            exports[name] = GraphOutput(outputs.setdefault(value, len(outputs)))
    return exports, outputs


def _make_segment(
    walk: GraphWalk,
    exports: dict[str, ExportSource],
    outputs: Mapping[Value, int],
    host_names: Sequence[str],
    tasks: tuple[Task, ...],
    next_stage: Stage | None,
    probe: bool = False,
) -> Segment:
    graph, sized = walk.builder.graph, walk.builder.shape_tensors
    graph.outputs = list(outputs)
    if sized:
        made = [n for n in graph.nodes if n.outputs[0] in sized]
        graph.nodes = [n for n in graph.nodes if n.outputs[0] not in sized]
    graph.prune()
    read = {v for node in graph.nodes for v in node.inputs}
    graph.inputs = [v for v in graph.inputs if v in read]
    lengths: dict[str, int] = {}
    joined: dict[str, str] = {}
    if reserved := walk.signature.reserved:
        numbers = {n: e.index for n, e in exports.items() if isinstance(e, GraphOutput)}
        lengths, joined = append_in_place(walk, graph, reserved, numbers)
    names = [walk.sources[v] for v in graph.inputs]
    given = None
    if sized:
        for v in dict.fromkeys(v for node in graph.nodes for v in node.inputs if v in sized):
            names.append(walk.shape_input_name(v))
            graph.inputs.append(v)
            v.producer = None
        given = _make_shape_inputs(walk, made)
    if walk.builder.trace.symbols:
        graph.trace = walk.builder.trace
        graph.trace.node = ""
    host = {e.index for n in host_names if isinstance(e := exports.get(n), GraphOutput)}
    on_host = tuple(i in host for i in range(len(outputs)))
    why = walk.builder.array_refusal
    return Segment(
        graph, tuple(names), on_host, exports, tasks, next_stage, given, walk.signature, lengths, joined, why, probe
    )


def _make_shape_inputs(walk: GraphWalk, made: Sequence[Node]) -> ShapeDependentInputs | None:
    """Return the computation of the shape-dependent inputs, from the nodes that depend on sizes only."""
    wanted = {name: value for value, name in walk.shape_inputs.items()}
    if not wanted:
        return None
    needed = set(wanted.values())
    nodes = []
    for node in reversed(made):
        if any(v in needed for v in node.outputs):
            nodes.append(node)
            needed.update(v for v in node.inputs if v is not None)
    leaves = {v: a for v, a in walk.builder.shape_tensors.items() if a is not None and v in needed}
    return ShapeDependentInputs(walk.builder.trace, leaves, nodes[::-1], wanted)


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
