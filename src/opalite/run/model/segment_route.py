"""SegmentRoute: cached dispatch of a model of several segments, for inputs of known types.

The number of rows that NonZero or NonMaxSuppression finds differs in each run. A run by the model looks for a program
of these sizes, or makes it, and prepares it. By the route, each segment has one program for the largest sizes so far,
and a run sets the numbers that depend on sizes. The run lock is held from the first segment to the last.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...importer import ImportRun, ModelImporter
from ...importer.walk.segments import Segment
from ...plan.program import Program
from ...plan.template.dynamic_parameters import DynamicParameters, Values
from ..execute.dynamic_shape_runs import DynamicShapeRuns
from ..execute.executable import Executable
from ..execute.memory.io_transfer import Target
from ..execute.run_trace import RunRecord, RunTrace
from ..execute.strategies.time_slicing import DeviceShare
from .background.respecialize_policy import Sizes
from .executable_cache import Compiled, ExecutableCache
from .route import NO_CONTENTS, Route, types_key

_HEADROOM = 1.5
"""Factor of sizes that have changed, up to which the same program serves."""
_SMALL = 1 << 18
"""Bytes between two segments that the host copies in less time than it takes to bind buffers."""
_log = logging.getLogger(__name__)


class _UnknownSegmentError(Exception):
    """A run needs a segment that was not imported."""


class SegmentRoute(Route):
    """Runs of several segments for inputs by name. The caller holds the run lock; no replica can serve them."""

    def __init__(
        self, importer: ModelImporter, executables: ExecutableCache, feeds: Mapping[str, Any], record: RunRecord
    ) -> None:
        """feeds: arrays, of the run that `record` is of; it found all segments."""
        self.executable = None
        self.key = types_key(feeds), NO_CONTENTS
        self.is_current = True
        self._contents = NO_CONTENTS
        self.types = [(name, array.dtype, array.shape) for name, array in feeds.items()]
        self._importer, self._executables = importer, executables
        self._parts: dict[Compiled, _Part] = {}
        self._ran = list(zip(record.executables, record.programs, strict=True))
        self.record(record)

    def _executed(self) -> Sequence[tuple[Executable, Program]]:
        return list(self._ran)

    def run(
        self,
        feeds: Mapping[str, Any],
        targets: Mapping[str, Target] | None = None,
        replica: Executable | None = None,
        share: DeviceShare | None = None,
        check: Callable[[], None] | None = None,
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order and the trace; None if the run needs the model.

        It does for outputs that stay on the device, and where a segment is new, or about to be compiled again.
        """
        if targets or len(feeds) != len(self.types):
            return None
        for name, dtype, shape in self.types:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
        trace = RunTrace()
        try:
            return self._run(feeds, trace, check)
        except _UnknownSegmentError:
            return None

    def _run(
        self, feeds: Mapping[str, Any], trace: RunTrace, check: Callable[[], None] | None
    ) -> tuple[list[Any], RunTrace] | None:
        clock = time.perf_counter
        executables, ran, mark = self._executables, [], clock()
        run = ImportRun(self._importer, feeds, _refuse_body, _refuse_import)
        uploaded: dict[int, tuple[Any, Any]] = {}
        while (segment := run.segment) is not None:
            if check is not None:
                check()
            sizes = run.sizes
            compiled = executables.nearest(segment, sizes)
            if compiled is None or not has_route(compiled):
                return None
            if sizes != compiled.made_for and executables.looks_for_plan(segment, compiled, sizes):
                return None  # the run by the model counts it, and plans for sizes that recur
            part = self._parts.get(compiled)
            if part is None:
                part = self._parts[compiled] = _Part(segment, compiled)
            arrays = [uploaded[id(v)][1] if id(v) in uploaded else v for v in run.feeds]
            spent_s = clock() - mark
            found = part.run(sizes, arrays)
            if found is None:
                return None
            outputs, spent = found
            mark = clock()
            trace.add(spent)
            trace.host_s += spent_s
            ran.append((compiled.executable, compiled.executable.program))
            if segment.next_stage is not None and part.keeps(arrays):
                tensors = zip(run.feeds, compiled.executable.io.input_views(arrays), strict=True)
                uploaded.update((id(v), (v, t)) for v, t in tensors if t is not None)
            run.advance(outputs)
        trace.host_s += clock() - mark
        self._ran = ran
        return run.outputs, trace


class _Part:
    """Runs of one segment. views: outputs, by number, that stay in the executable's memory for the next segment."""

    def __init__(self, segment: Segment, compiled: Compiled) -> None:
        self._compiled = compiled
        self._sizes: Sizes | None = None  # the largest so far
        self._moves: set[int] = set()  # numbers of the sizes that have changed
        self._runs: DynamicShapeRuns | None = None
        self._is_fixed = compiled.template is None  # each choice of sizes has its own program
        ports = compiled.executable.program.outputs
        kept = [i for i, wanted in enumerate(segment.on_host) if not wanted]
        self._most_copied = _SMALL if compiled.executable.rt.shares_memory else 0
        is_small = sum(math.prod(ports[i].shape) * ports[i].dtype.size for i in kept) <= self._most_copied
        self.views = () if is_small else tuple(kept)

    def keeps(self, arrays: Sequence[Any]) -> bool:
        """Whether later segments should read these inputs in the executable's memory."""
        return any(v.nbytes > self._most_copied for v in arrays)

    def run(self, sizes: Sizes, arrays: Sequence[Any]) -> tuple[list[Any], RunTrace] | None:
        """The outputs in order and the trace; None if the executable does not serve these sizes any more."""
        compiled = self._compiled
        values = None if self._is_fixed else self._values(sizes)
        if values is not None:
            assert self._runs is not None
            with compiled.executable.entered() as is_there:
                return self._runs.run(values, arrays, views=self.views) if is_there else None
        at = compiled.at(sizes)
        if at is None:
            return None
        with compiled.executable.entered(at.program) as is_there:
            return compiled.executable.run(arrays, views=self.views) if is_there else None

    def _values(self, sizes: Sizes) -> Values | None:
        """The dynamic parameters at `sizes`, once these have changed; None if a program of its own serves them."""
        if self._runs is not None and (values := self._runs.dynamic.at(sizes)) is not None:
            return values
        most = self._sizes or sizes
        self._moves.update(i for i, (a, b) in enumerate(zip(sizes, most, strict=True)) if a != b)
        self._sizes = most = tuple(map(max, sizes, most))
        if not self._moves:
            return None
        template = self._compiled.template
        assert template is not None
        for factor in (_HEADROOM, 1):
            largest = [math.ceil(factor * n) if i in self._moves else sizes[i] for i, n in enumerate(most)]
            try:
                made = DynamicShapeRuns(self._compiled.executable, DynamicParameters(template, largest, self._moves))
            except ValueError as e:
                _log.info("other sizes are another program: %s", e)
                continue
            self._runs = made
            return made.dynamic.at(sizes)
        self._is_fixed = True
        return None


def has_route(compiled: Compiled) -> bool:
    """Whether a route may lead to an executable: it is not about to be replaced, and its outputs need no check."""
    return compiled.is_proven and not compiled.may_overflow and compiled.executable.tier != "generic"


def _refuse_import() -> None:
    raise _UnknownSegmentError


def _refuse_body(body: ModelImporter, inner: Mapping[str, Any]) -> Sequence[Any]:
    raise AssertionError("models with loops have no such route")
