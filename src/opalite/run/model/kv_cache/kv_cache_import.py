"""A run on KV caches by the imported model, whose plan is stored for later processes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....cl.programs.background_throttle import background_planning
from ....importer import ImportRun, ModelImporter
from ....importer.walk.segments import Segment
from ....ir.graph import Graph
from ....plan.program import Program
from ....plan.template.program_template import Template
from ...execute.run_trace import RunRecord, RunTrace
from ..executable_cache import Compiled
from ..fp16_overflow_fallback import recover
from ..imported_model import record_of
from ..prompt_length_buckets import graph_of_prompts
from ..run_lock import RunLockHold
from .kv_cache_record import record_kv_cache_spec, shape_kv_cache_spec
from .kv_cache_runs import ExecutionPath, KVCacheRuns, NoKVCacheRunError

if TYPE_CHECKING:
    from ..run_request import RunRequest


def run_imported(runs: KVCacheRuns, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
    """Outputs and trace of a run as `KVCacheRuns.run` returns them; `feeds` are all inputs of the model, checked."""
    model = runs.imported
    trace = RunTrace(run_record=RunRecord())
    with RunLockHold(request.lock) as hold, ExitStack() as throttled:

        def before_import() -> None:
            hold.release()
            throttled.enter_context(background_planning())

        started = time.perf_counter()
        run = ImportRun(model.imported.importer, feeds, _no_bodies, before_import)
        segment, sizes = _checked(runs, run), run.sizes
        trace.import_s += time.perf_counter() - started
        full = (
            record_kv_cache_spec(model.imported, segment, feeds, run.by_contents) if run.is_whole_for_contents else None
        )
        record = full or shape_kv_cache_spec(segment)
        given = None if segment.shape_inputs is None else record_of(segment.shape_inputs)

        tunes = (request.tuning.level or model.compiler.options.tune) != "none"

        def keep(program: Program | Template, notes: tuple[str, ...]) -> None:
            if full is not None and isinstance(program, Template) and not tunes:
                runs.store_plan(full, replace(program, given=given), program, notes, feeds)

        def make() -> Compiled:
            graph = _planned(runs, segment, sizes)
            return model.compiler.compile(graph, trace, request.tuning, sizes=sizes, on_built=keep)

        compiled, _ = model.executables.find_or_make(segment, sizes, make)
        throttled.close()
        hold.acquire()

        def run_by(which: Compiled) -> tuple[list[Any], RunTrace]:
            return runs.execute(
                ExecutionPath(model.executables, segment, which, record, given), sizes, run.feeds, request
            )

        outputs, spent = run_by(compiled)
        trace.add(spent)
        # Lengths change only after the check: a repeated run overwrites what the first one appended.
        believed, outputs = recover(
            model.compiler,
            compiled,
            segment.graph,
            sizes,
            run_by,
            outputs,
            trace,
            request,
            hold,
            waits=True,
            logged=model.logged,
        )
        believed.is_proven = True
        if believed is not compiled:
            compiled = model.executables.keep(segment, believed, instead_of=compiled)
            runs.delete_plan(feeds)
        path = ExecutionPath(model.executables, segment, compiled, record, given)
        runs.record(trace, path, sizes, segment.lengths_at(sizes))
    runs.prepare_next(path, feeds, sizes, is_described=full is not None)
    run.advance(outputs)
    return run.outputs, trace


def _planned(runs: KVCacheRuns, segment: Segment, sizes: tuple[int, ...]) -> Graph:
    """The segment's graph at the sizes that kernels are chosen for."""
    grown = [n for n in runs.caches if n not in runs.fixed_size]
    if runs.imported.compiler.rt.info.on_host or segment.signature is None or not grown:
        return segment.graph
    held = max(runs.caches[n].length for n in grown)
    new = max(segment.lengths_at(sizes)[n] for n in grown) - held
    return graph_of_prompts(segment.graph, sizes, held, new, segment.signature.capacity)


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
    return segment


def _no_bodies(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise NoKVCacheRunError("the host runs the body of a loop")
