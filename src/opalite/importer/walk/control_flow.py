"""If, Loop, Scan and SequenceMap: inlined if possible at import, else run between two segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.dtype import DType
from ...ir.symbols import is_symbolic_int
from ..proto.graphdef import GraphDef, NodeDef
from .constant_evaluation import ancestors
from .graph_walk import Control, GraphWalk
from .internal_ops import internal_node
from .loop_body_analysis import distance_power, shapes_depend_on
from .loop_body_tasks import Body, LoopTask, MapTask, ScanPlan, ScanTask, shaped_as
from .name_scopes import Item, make_item
from .static_sequences import SEQUENCES
from .symbolic_dims import DimSpec, declared_dims, symbolic_dims
from .text_generation import GenerationTask, gather_inputs, gather_outputs

_SCAN_ORDER = ("input_axes", "input_directions", "output_axes", "output_directions")
"""Suffixes of the scan_* attributes for the axes and directions of a Scan."""

MAX_UNROLLED_ITERATIONS = 64
MAX_UNROLLED_NODES = 1000
"""Limits for unrolling a loop: iterations, and nodes in total."""


def visit_if(walk: GraphWalk, item: Item) -> None:
    """Import an If: inline the selected branch once the condition is known."""
    name = _required(item, 0, "condition")
    if name in walk.deferred:
        walk.postpone(item)
        return
    condition = walk.find_contents(item, name)
    if condition is None:
        walk.await_contents(item, name)
        return
    taken = bool(_scalar(item, condition, "condition"))
    branches = {which: _graph(item, which) for which in ("then_branch", "else_branch")}
    for which, graph in branches.items():
        if len(graph.outputs) < len(item.outputs):
            raise ShapeError(f"{item.node.label} has {len(item.outputs)} outputs, its {which} {len(graph.outputs)}")
    branch = branches["then_branch" if taken else "else_branch"]
    walk.inline(branch, item, "then" if taken else "else", (), item.outputs)


def visit_loop(walk: GraphWalk, item: Item) -> None:
    """Import a Loop: unrolled if all conditions are known and this segment can hold it, else as a LoopTask."""
    if _must_wait(walk, item):
        return
    body = _graph(item, "body")
    # An unrolled loop needs one plan per iteration count. That pays only if the body differs between iterations.
    counting = [v.name for v in body.inputs if v.dtype in (DType.INT32, DType.INT64)]
    fixes = shapes_depend_on(body, counting)
    iterations, condition = (_known_scalar(walk, item, i, fixes) for i in (0, 1))
    here = not any(n in walk.objects or n in walk.deferred for n in item.inputs)
    short = iterations is not _UNKNOWN and iterations is not None and iterations <= _max_unrolled(body)
    if here and _UNKNOWN not in (iterations, condition) and (short or _may_stop(body)):
        mark = walk.mark()
        if _unroll_loop(walk, item, body, iterations, condition is None or bool(condition)):
            return
        walk.rollback(mark)
    walk.add_task(item, LoopTask(item, _body(walk, item, body, slice(2, None))))


def _may_stop(body: GraphDef) -> bool:
    """Whether the body computes its condition, rather than returning it unchanged."""
    name = body.outputs[0].name if body.outputs else ""
    identities = {n.outputs[0]: n.inputs[0] for n in body.nodes if n.op_type == "Identity"}
    while name in identities:
        name = identities[name]
    return name not in body.constants and not (len(body.inputs) > 1 and name == body.inputs[1].name)


def _unroll_loop(walk: GraphWalk, item: Item, body: GraphDef, iterations: int | None, going: bool) -> bool:
    """Inline one iteration after another; False if one is incomplete in this segment."""
    begun = (len(walk.pending), len(walk.tasks))
    state = list(item.inputs[2:])
    if len(body.inputs) != 2 + len(state) or len(body.outputs) < 1 + len(state):
        raise ShapeError(
            f"{item.node.label} carries {len(state)} values, but its body has {len(body.inputs)} inputs (2 more are "
            f"expected) and {len(body.outputs)} outputs (at least 1 more)"
        )
    columns: list[list[str]] = [[] for _ in body.outputs[1 + len(state) :]]
    prefix = _first_output(item)
    i = 0
    while going and (iterations is None or i < iterations):
        if i >= _max_unrolled(body):
            return False
        count, flag = f"{prefix}/iteration.{i}", f"{prefix}/condition.{i}"
        walk.constants[count] = shaped_as(np.asarray(i, np.int64), body.inputs[0])
        walk.constants[flag] = shaped_as(np.asarray(True), body.inputs[1])
        outs = walk.inline(body, item, str(i), [count, flag, *state], None)
        if begun != (len(walk.pending), len(walk.tasks)):
            return False
        decided = walk.find_contents(item, outs[0])
        if decided is None:
            return False
        going = bool(_scalar(item, decided, "condition"))
        state = outs[1 : 1 + len(state)]
        for column, name in zip(columns, outs[1 + len(state) :], strict=True):
            column.append(name)
        i += 1
    if i == 0 and columns:
        return False
    _finish(walk, item, state, columns, (0,) * len(columns), (False,) * len(columns))
    return True


def visit_scan(walk: GraphWalk, item: Item) -> None:
    """Import a Scan: unrolled if it is short, else as a ScanTask."""
    if _must_wait(walk, item):
        return
    body = _graph(item, "body")
    mark = walk.mark()
    if item.node.version >= 9 and (_distance_scan(walk, item, body) or _unroll_scan(walk, item, body)):
        return
    walk.rollback(mark)
    walk.add_task(item, ScanTask(item, _body(walk, item, body, slice(0, ScanPlan(item).n_states))))


def _distance_scan(walk: GraphWalk, item: Item, body: GraphDef) -> bool:
    """Import a Scan that computes pairwise distances; False if it computes something else."""
    attrs = item.node.attrs
    plain = not any(any(attrs.get(f"scan_{n}", ())) for n in _SCAN_ORDER)
    if len(item.inputs) != 2 or attrs.get("num_scan_inputs") != 1 or not plain:
        return False
    power = distance_power(body)
    points = [walk.lookup(n) for n in item.inputs]
    if power is None or any(v is None or len(v.shape) != 2 or not v.dtype.is_float for v in points):
        return False
    x, y = (v for v in points if v is not None)
    if x.shape[1] != y.shape[1] or x.dtype is not y.dtype:
        return False
    _finish(walk, item, item.inputs[:1], (), (), ())
    if item.outputs[1:] and item.outputs[1]:
        made = internal_node("Distances", item.node.name, tuple(item.inputs), item.outputs[1], {"power": power})
        walk.visit(make_item(made))
    return True


def _unroll_scan(walk: GraphWalk, item: Item, body: GraphDef) -> bool:
    plan = ScanPlan(item)
    scanned = item.inputs[plan.n_states :]
    found = [walk.lookup(n) for n in scanned]
    shapes = [v.shape for v in found if v is not None]
    if len(shapes) != len(scanned):
        return False
    axes = plan.input_axes([len(s) for s in shapes])
    length = plan.length(shapes, axes)
    if is_symbolic_int(length) or not 0 < length <= _max_unrolled(body):
        return False
    begun = (len(walk.pending), len(walk.tasks))
    state = list(item.inputs[: plan.n_states])
    columns: list[list[str]] = [[] for _ in body.outputs[plan.n_states :]]
    prefix = _first_output(item)
    for i in range(length):
        slices = []
        for k, name in enumerate(scanned):
            piece = f"{prefix}/slice.{k}.{i}"
            index = length - 1 - i if plan.input_reverse[k] else i
            take = internal_node("Take", item.node.name, (name,), piece, {"axis": axes[k], "index": index})
            walk.visit(make_item(take))
            slices.append(piece)
        outs = walk.inline(body, item, str(i), [*state, *slices], None)
        if begun != (len(walk.pending), len(walk.tasks)):
            return False
        state = outs[: plan.n_states]
        for column, name in zip(columns, outs[plan.n_states :], strict=True):
            column.append(name)
    _finish(walk, item, state, columns, plan.output_axes(len(columns)), plan.output_reverse(len(columns)))
    return True


def visit_sequence_map(walk: GraphWalk, item: Item) -> None:
    """Import a SequenceMap: inlined for each element of a known sequence; a host list needs a MapTask."""
    body = _graph(item, "body")
    elements = walk.sequences.get(item.inputs[0])
    if elements is None or len(elements) > _max_unrolled(body) or any(n in walk.objects for n in item.inputs):
        if not _must_wait(walk, item):
            walk.add_task(item, MapTask(item, _body(walk, item, body, slice(0, 0))))
        return
    if any(len(walk.sequences[n]) != len(elements) for n in item.inputs if n in walk.sequences):
        raise ShapeError(f"{item.node.label} maps sequences of different lengths")
    results: list[list[str]] = [[] for _ in body.outputs]
    for i in range(len(elements)):
        inputs = [walk.sequences[n][i] if n in walk.sequences else n for n in item.inputs]
        for column, name in zip(results, walk.inline(body, item, str(i), inputs, None), strict=True):
            column.append(name)
    walk.sequences.update((out, tuple(column)) for out, column in zip(item.outputs, results, strict=False) if out)


def _finish(
    walk: GraphWalk,
    item: Item,
    state: Sequence[str],
    columns: Sequence[Sequence[str]],
    axes: Sequence[int],
    reverse: Sequence[bool],
) -> None:
    """Bind the final state and the stacked scan outputs to the node's outputs."""
    name = item.node.name
    for source, out in zip(state, item.outputs, strict=False):
        if out:
            walk.visit(make_item(internal_node("PassThrough", name, (source,), out, {})))
    for column, out, axis, back in zip(columns, item.outputs[len(state) :], axes, reverse, strict=False):
        if out:
            attrs = {"axis": axis, "reverse": back}
            walk.visit(make_item(internal_node("Stack", name, tuple(column), out, attrs)))


def _must_wait(walk: GraphWalk, item: Item) -> bool:
    """Defer the node if it reads a deferred value that no task of this segment computes."""
    missing = [n for n in item.reads if n in walk.deferred]
    if not missing or all(n in walk.made_by_tasks for n in missing):
        return False
    walk.postpone(item)
    return True


def _body(walk: GraphWalk, item: Item, graph: GraphDef, states: slice, declared: bool = False) -> Body:
    """Make a model of the body: weights of the outer model become its constants, other captured values its inputs.

    states: the node's inputs that are body inputs in the first iteration. declared: the body's declared dynamic
    dimensions change between runs.
    """
    captured = [(n, item.scope.resolve(n)) for n in graph.captures]
    weights = {local: array for local, outer in captured if (array := walk.static_contents(outer)) is not None}
    fed = tuple((local, outer) for local, outer in captured if local not in weights)
    given = [*fed, *zip([v.name for v in graph.inputs[states]], item.inputs[states], strict=False)]
    values = ((local, walk.lookup(outer)) for local, outer in given if outer)
    dims: dict[str, DimSpec] = {local: symbolic_dims(v.shape) for local, v in values if v is not None}
    if declared:
        dims |= {v.name: declared_dims(v.shape or ()) for v in graph.inputs}
    return Body(graph, walk.nested(item, graph, weights, {n: d for n, d in dims.items() if any(d)}), fed)


_UNKNOWN: Any = object()


def _known_scalar(walk: GraphWalk, item: Item, i: int, fixes: bool) -> Any:
    """Return an iteration limit or condition: None if absent, _UNKNOWN if it depends on data.

    fixes: sizes may become static for it; else a value that depends on sizes is _UNKNOWN too.
    """
    name = item.inputs[i] if i < len(item.inputs) else ""
    if not name:
        return None
    if name in walk.deferred or name in walk.objects:
        return _UNKNOWN
    if not fixes and _depends_on_sizes(walk, name):
        return _UNKNOWN
    array = walk.find_contents(item, name)
    return _UNKNOWN if array is None else _scalar(item, array, "iteration limit or condition")


def _depends_on_sizes(walk: GraphWalk, name: str) -> bool:
    """Whether the contents depend on symbolic sizes, which would become static."""
    value, sized = walk.lookup(name), walk.builder.shape_tensors
    if value is None or value.is_const or not sized:
        return False
    return value in sized or any(v in sized for node in ancestors([value]) for v in node.inputs)


def _scalar(item: Item, array: Any, what: str) -> Any:
    if array.size != 1:
        raise ShapeError(f"the {what} of {item.node.label} must hold one element, got shape {array.shape}")
    return array.reshape(()).item()


def _required(item: Item, i: int, what: str) -> str:
    if i >= len(item.inputs) or not item.inputs[i]:
        raise ShapeError(f"{item.node.label} lacks its {what} (input {i})")
    return item.inputs[i]


def _graph(item: Item, name: str) -> GraphDef:
    graph = item.node.attrs.get(name)
    if not isinstance(graph, GraphDef):
        raise ShapeError(f"{item.node.label} lacks its graph attribute '{name}'")
    return graph


def _first_output(item: Item) -> str:
    return next(n for n in item.outputs if n)


def _max_unrolled(body: GraphDef) -> int:
    return min(MAX_UNROLLED_ITERATIONS, MAX_UNROLLED_NODES // max(1, body.size))


def visit_generation(walk: GraphWalk, item: Item) -> None:
    """Import text generation by a decoder: as a loop on the host."""
    if _must_wait(walk, item):
        return
    graphs = {name: a for name, a in item.node.attrs.items() if isinstance(a, GraphDef)}
    decoder = _graph(item, "decoder")
    kind = int(item.node.attrs.get("model_type", 0 if "encoder" not in graphs else 1))
    made = item.node.memo.get("generation")
    if made is None:
        caches = [v.name for v in decoder.inputs if v.name.startswith("past") and "cross" not in v.name]
        made = {**graphs, "reorder": gather_inputs(decoder, caches, 0 if kind else 1)}
        if kind:
            encoder = _graph(item, "encoder")
            made["expand"] = gather_outputs(encoder, int(encoder.outputs[0].name == "logits"))
        made = {name: replace(graph, name=f"{graph.name}:{name}") for name, graph in made.items()}
        item.node.memo["generation"] = made
    nothing = slice(len(item.inputs), None)
    walk.add_task(
        item, GenerationTask(item, {n: _body(walk, item, g, nothing, declared=True) for n, g in made.items()})
    )


CONTROL: dict[str, Control] = {
    **SEQUENCES,
    "If": visit_if,
    "Loop": visit_loop,
    "Scan": visit_scan,
    "SequenceMap": visit_sequence_map,
    **{f"com.microsoft:{n}": visit_generation for n in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")},
}
"""Importers of control flow and sequences, by operator name, or by domain:name."""


def find_control(node: NodeDef) -> Control | None:
    """Find the control-flow importer of the node; None if it has none."""
    return CONTROL.get(f"{node.domain}:{node.op_type}" if node.domain else node.op_type)
