"""A run on KV caches by the imported model, whose plan is stored for later processes.

On GPUs one plan serves short prompts and one long prompts, whichever comes first. By estimates for an H200, tiles for
128 tokens take twice the least time at 2,048 tokens, and tiles for 2,048 tokens take three times the least time at 128.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....importer import ImportRun, ModelImporter
from ....importer.walk.segments import GraphOutput, Segment
from ....importer.walk.shape_dependent_inputs import graph_with_hints
from ....ir.graph import Graph
from ....ir.growable_tensor import FEW, LONG, PROMPT, SHORT
from ....ir.symbols import is_symbolic_int
from ....plan.kv_cache_spec import Cache, InputSpec, KVCacheSpec
from ....plan.program import Program
from ....plan.template.program_template import Template
from ...execute.run_trace import RunTrace
from ..background.respecialize_policy import Sizes
from ..executable_cache import Compiled
from ..imported_model import ImportedModel, record_of
from ..model_run import ModelRun
from ..segment_runs import start
from .kv_cache_runs import ExecutionPath, KVCacheRuns, NoKVCacheRunError

if TYPE_CHECKING:
    from ..run_request import RunRequest

_MAX_FIXED_BYTES = 4096  # of an input that must have the same contents in each run


def run_imported(runs: KVCacheRuns, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
    """Outputs and trace of a run as `KVCacheRuns.run` returns them; `feeds` are all inputs of the model, checked."""
    model = runs.imported
    with ModelRun(request) as model_run:
        run, _ = start(model.imported.importer, feeds, _no_bodies, model_run)
        segment, sizes = _checked(runs, run), run.sizes
        full = None
        if run.is_whole_for_contents:
            full = record_kv_cache_spec(model.imported, segment, feeds, run.by_contents)
        record = full or shape_kv_cache_spec(segment)
        given = None if segment.shape_inputs is None else record_of(segment.shape_inputs)

        def keep(program: Program | Template, notes: tuple[str, ...]) -> None:
            if full is not None and model.store is not None and not model.compiler.tunes(request.tuning):
                model.store.store_for_caches(model.imported, feeds, full, given, program, notes)

        def make() -> Compiled:
            graph = _planned(runs, segment, sizes)
            return model.compiler.compile(graph, model_run.trace, request.tuning, sizes=sizes, on_built=keep)

        def path_by(compiled: Compiled) -> ExecutionPath:
            return ExecutionPath(model.executables, segment, compiled, record, given)

        compiled, _ = model.executables.find_or_make(segment, sizes, make)
        outputs = runs.execute(path_by(compiled), sizes, run.feeds, model_run)
        # Lengths change only after the check: a repeated run overwrites what the first one appended.
        believed, outputs = model.check_halves(
            segment,
            compiled,
            sizes,
            lambda other: runs.execute(path_by(other), sizes, run.feeds, model_run),
            outputs,
            model_run,
        )
        if believed is not compiled and model.store is not None:
            model.store.delete(feeds)
        runs.record(model_run, path_by(believed), sizes, segment.lengths_at(sizes))
    runs.prepare_next(path_by(believed), feeds, sizes, is_described=full is not None)
    run.advance(outputs)
    return run.outputs, model_run.trace


def _planned(runs: KVCacheRuns, segment: Segment, sizes: Sizes) -> Graph:
    """The segment's graph at the sizes that kernels are chosen for."""
    grown = [n for n in runs.caches if n not in runs.fixed_size]
    if runs.imported.compiler.rt.info.on_host or segment.signature is None or not grown:
        return segment.graph
    held = max(runs.caches[n].length for n in grown)
    new = max(segment.lengths_at(sizes)[n] for n in grown) - held
    return graph_of_prompts(segment.graph, sizes, held, new, segment.signature.capacity)


def prompt_sizes(sizes: Sizes, held: int, new: int, capacity: int) -> Sizes:
    """`sizes` with as many new positions as kernels are chosen for.

    held, new: positions in the caches, and added by this run. capacity: number of the size that says how many positions
    are reserved. Other sizes that are equal to these count as these.
    """
    more = (SHORT if new < LONG else PROMPT) - new
    moved = [n + more if n in (new, held + new) else n for n in sizes]
    moved[capacity] = max(sizes[capacity], held + new + more + 1)
    return tuple(moved)


def graph_of_prompts(graph: Graph, sizes: Sizes, held: int, new: int, capacity: int) -> Graph:
    """`graph`, or for prompts a copy at `prompt_sizes`, whose plan serves either short or long prompts."""
    if new <= FEW or new not in sizes or graph.trace is None:
        return graph
    wanted = prompt_sizes(sizes, held, new, capacity)
    if not graph.trace.holds(wanted):
        return graph
    moved = graph_with_hints(graph, wanted)
    assert moved.trace is not None
    bool(moved.trace.symbols[sizes.index(new)] < LONG)  # the comparison records a guard of the plan
    return moved


def _checked(runs: KVCacheRuns, run: ImportRun) -> Segment:
    """The one segment of the run. NoKVCacheRunError unless it appends to all caches."""
    segment = run.segment
    if segment is None or segment.next_stage is not None:
        raise NoKVCacheRunError("the model is more than one program, as what it computes depends on contents")
    for name, why in segment.not_in_place.items():
        raise NoKVCacheRunError(f"'{name}': {why}")
    if any(n in runs.presents.values() for task in segment.tasks for n in task.inputs):
        raise NoKVCacheRunError("operators on the host read the caches")
    if any(n not in segment.lengths for n in runs.caches):
        raise NoKVCacheRunError("not all caches become outputs of one program")
    if runs.as_arrays and segment.array_refusal:
        raise NoKVCacheRunError(segment.array_refusal)
    return segment


def _no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise NoKVCacheRunError("the host runs the body of a loop")


def record_kv_cache_spec(
    imported: ImportedModel, segment: Segment, feeds: Mapping[str, Any], by_contents: Collection[str]
) -> KVCacheSpec | None:
    """The spec of runs of `segment`, the whole model, on feeds like `feeds`; None if they cannot be described.

    by_contents: inputs whose contents, not only their types, selected the segment.
    """
    signature = segment.signature
    assert signature is not None
    if not feeds.keys() >= set(by_contents):
        return None
    fixed = {n: feeds[n] for n in by_contents if n not in signature.contents}
    if any(type(v) is not np.ndarray or v.dtype.hasobject or v.nbytes > _MAX_FIXED_BYTES for v in fixed.values()):
        return None
    tensors, contents = {}, {}
    for name, numbers in signature.shapes.items():
        if name in feeds:
            value = feeds[name]
            tensors[name] = InputSpec(value.dtype.name, tuple(value.shape), numbers)
    for name, numbers in signature.contents.items():
        if name in feeds:
            value = np.asarray(feeds[name])
            values = tuple(map(int, value.reshape(-1).tolist()))
            contents[name] = InputSpec(value.dtype.name, value.shape, numbers, values)
    if tensors.keys() | contents.keys() | fixed.keys() != feeds.keys():
        return None
    made = () if segment.shape_inputs is None else segment.shape_inputs.wanted
    outputs: dict[str, Any] = {}
    for info in imported.outputs:
        found, passed = imported.source(segment, info.name)
        is_input = not isinstance(found, GraphOutput) and (passed in feeds or passed in made)
        source = passed if is_input else found.index if isinstance(found, GraphOutput) else found
        if source is None:
            return None
        outputs[info.name] = source
    return replace(
        shape_kv_cache_spec(segment),
        tensors=tensors,
        contents=contents,
        fixed={n: (v.dtype.name, v.shape, v.tobytes()) for n, v in fixed.items()},
        outputs=outputs,
    )


def shape_kv_cache_spec(segment: Segment) -> KVCacheSpec:
    """The spec of any segment that appends to caches, with the outputs that may stay on the device."""
    signature = segment.signature
    assert signature is not None
    asked = {n for task in segment.tasks for n in task.inputs}
    sources = {n: s.index for n, s in segment.exports.items() if isinstance(s, GraphOutput)}
    on_host = {index for n, index in sources.items() if n in asked}
    return KVCacheSpec(
        len(signature.sizes),
        signature.capacity,
        {},
        {},
        {},
        {n: Cache(r.axis, r.grows, r.present, r.narrow) for n, r in signature.reserved.items()},
        segment.inputs,
        segment.graph.input_output_aliases,
        {n: d.text if is_symbolic_int(d) else str(d) for n, d in segment.lengths.items()},
        {n: index for n, index in sources.items() if index not in on_host},
        segment.array_refusal,
    )
