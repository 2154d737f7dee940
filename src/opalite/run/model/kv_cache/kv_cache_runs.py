"""KVCacheRuns: runs of a model whose KV caches stay on the device, where new positions are appended in place.

A run repeats the last decode step (decode_fast_path.py), or takes a plan from the cache folder (kv_cache_plans.py), or
imports the model (kv_cache_import.py).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....ir.dtype import DType
from ....ir.growable_tensor import GrowableTensor
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.program import Program
from ....plan.template.program_template import Template
from ....plan.template.shape_tensors import ShapeTensors
from ...execute.run_trace import RunRecord, RunTrace
from ..cached_model import CachedModel
from ..executable_cache import Compiled, ExecutableCache
from ..fp16_overflow_fallback import is_finite
from ..run_lock import RunLockHold
from ..run_request import RunRequest
from .decode_fast_path import DecodeFastPath, find_dynamic_runs, kept_numbers, output_of

if TYPE_CHECKING:
    from ..onnx_model import OnnxModel
    from .kv_cache_plans import KVCachePlan

Array = np.ndarray[Any, Any]


class NoKVCacheRunError(Exception):
    """A model's caches cannot be appended in place; the caller feeds them as arrays instead."""


@dataclass(frozen=True)
class ExecutionPath:
    """The executable of a run. key: of `compiled` in `executables`. given: values that follow from sizes alone."""

    executables: ExecutableCache
    key: Hashable
    compiled: Compiled
    record: KVCacheSpec
    given: ShapeTensors | None


class KVCacheRuns:
    """Runs of a model on the caches of one state; takes the model's place in a session's run.

    caches: of the next run, by input. fixed_size: inputs of caches that are written into and do not grow.
    """

    def __init__(
        self, model: OnnxModel | CachedModel, presents: Mapping[str, str], fixed_size: Collection[str] = ()
    ) -> None:
        """presents: by a cache's input, the output that is its next value."""
        self._model, self.presents, self.fixed_size = model, presents, frozenset(fixed_size)
        self.caches: Mapping[str, GrowableDeviceTensor] = {}
        self._fast_path: DecodeFastPath | None = None  # of runs like the last one
        self._found: tuple[KVCachePlan, tuple[int, ...]] | None = None  # the plan and sizes for feeds that were checked
        self._last: tuple[Hashable, tuple[int, ...], int] | None = None  # key, sizes and cache length of the last run

    @property
    def has_fast_path(self) -> bool:
        """Whether the next decode step can take the fast path."""
        return self._fast_path is not None

    def copy(self) -> KVCacheRuns:
        """A copy for another state."""
        other = KVCacheRuns(self._model, self.presents, self.fixed_size)
        other._fast_path = None if self._fast_path is None else self._fast_path.copy()
        other._last = self._last
        return other

    @property
    def imported(self) -> OnnxModel:
        """The imported model."""
        return self._model.imported() if isinstance(self._model, CachedModel) else self._model

    def check_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """All inputs of the model, checked; `feeds` as they are if the fast path serves them."""
        fast_path = self._fast_path
        if fast_path is not None and fast_path.serves(feeds, self.caches):
            return feeds
        self._fast_path = None
        past = {
            n: GrowableTensor(
                t.dtype, t.shape, t.axis, t.capacity, self.presents[n], n not in self.fixed_size, t.is_int8
            )
            for n, t in self.caches.items()
        }
        whole = {**feeds, **past}
        model = self._model
        self._found = None if not isinstance(model, CachedModel) else model.find_kv_plan(whole)
        return whole if self._found is not None else self.imported.check_feeds(whole)

    def run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, None for caches, which have grown; and the trace.

        NoKVCacheRunError, before anything has run, if the model's caches cannot be appended in place.
        """
        fast_path = self._fast_path
        if fast_path is not None:
            with RunLockHold(request.lock) as hold:
                hold.acquire()
                found = fast_path.run(feeds, self.caches, request.targets, request.unread)
            if found is not None:
                return found
            self._fast_path = None
            feeds = self.check_feeds(feeds)
        if self._found is not None:
            found = self._run_stored(*self._found, feeds, request)
            if found is not None:
                return found
            feeds = self.imported.check_feeds(feeds)
        from .kv_cache_import import run_imported  # with onnx, which plans do without

        return run_imported(self, feeds, request)

    def run_in_flight(
        self, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str], request: RunRequest
    ) -> tuple[list[list[Any]], RunTrace] | None:
        """As `DecodeFastPath.run_in_flight`; None without a fast path."""
        fast_path = self._fast_path
        if fast_path is None:
            return None
        with RunLockHold(request.lock) as hold:
            hold.acquire()
            return fast_path.run_in_flight(feeds, self.caches, links, request.unread)

    def _run_stored(
        self, plan: KVCachePlan, sizes: tuple[int, ...], feeds: Mapping[str, Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace] | None:
        """A run by a plan from the cache folder; None if half storage overflowed, with caches as before."""
        trace = RunTrace(run_record=RunRecord())
        record, given = plan.record, plan.given
        with RunLockHold(request.lock) as hold:
            compiled = plan.compiled(sizes, trace)
            values = {**feeds, **({} if given is None else given.at(sizes))}
            hold.acquire()
            path = ExecutionPath(plan.executables, plan.variant, compiled, record, given)
            outputs, spent = self.execute(path, sizes, [values[n] for n in record.inputs], request)
            trace.add(spent)
            if compiled.may_overflow and not is_finite(outputs):
                assert isinstance(self._model, CachedModel)
                self._model.discard_kv_plan(plan)
                return None
            compiled.is_proven = True
            self.record(trace, path, sizes, record.lengths_at(sizes))
        self.prepare_next(path, feeds, sizes)
        by_number = dict(enumerate(outputs))
        return [output_of(s, by_number, feeds, values) for s in record.outputs.values()], trace

    def store_plan(
        self,
        record: KVCacheSpec,
        template: Template,
        program: Template,
        notes: tuple[str, ...],
        feeds: Mapping[str, Any],
    ) -> None:
        """Store `template`, a copy of `program`, for runs of later processes on such `feeds`."""
        if isinstance(self._model, CachedModel):
            self._model.store_kv_plan(record, template, program, notes, feeds)

    def delete_plan(self, feeds: Mapping[str, Any]) -> None:
        """Delete the stored plan for runs on such `feeds`."""
        if isinstance(self._model, CachedModel):
            self._model.delete_kv_plan(feeds)

    def record(self, trace: RunTrace, path: ExecutionPath, sizes: tuple[int, ...], lengths: Mapping[str, int]) -> None:
        """Record a checked run: set the lengths of caches, and what the trace says of the run."""
        assert trace.run_record is not None
        at = path.compiled.at(sizes)
        trace.run_record.add(path.compiled.executable)
        trace.run_record.note(
            *path.compiled.notes, *path.compiled.inherited_notes, *(at.notes if at is not None else ())
        )
        for name, length in lengths.items():
            self.caches[name].length = length

    def execute(
        self, path: ExecutionPath, sizes: tuple[int, ...], feeds: Sequence[Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace]:
        """Outputs of a graph, None for caches, whose lengths do not change; and the trace. feeds: all its inputs."""
        compiled, record = path.compiled, path.record
        at = compiled.at(sizes)
        assert at is not None
        executable = compiled.executable
        reserved, made = ({pair[i] for pair in record.input_output_aliases} for i in (0, 1))
        arrays = [v for i, v in enumerate(feeds) if i not in reserved]
        # Outputs of the first run stay on the host if half storage may overflow, because it is checked.
        keeps = request.targets and (compiled.is_proven or not compiled.may_overflow)
        targets = kept_numbers(record, request.targets) if keeps else {}
        others = [o for o in range(len(at.program.outputs) + len(made)) if o not in made]
        kept = {others.index(o): target for o, target in targets.items() if o not in made}
        with executable.entered(at.program, self._buffers(record, at.program)):
            found, spent = executable.run(arrays, kept)
        outputs: list[Any] = [None] * (len(others) + len(made))
        for number, value in zip(others, found, strict=True):
            outputs[number] = value
        return outputs, spent

    def _buffers(self, record: KVCacheSpec, program: Program) -> dict[int, Any]:
        """The caches' buffers by slot, converted to the program's dtype."""
        memory = {}
        for port, (number, _) in zip(program.reserved, record.input_output_aliases, strict=True):
            cache = self.caches[record.inputs[number]]
            if port.dtype is not DType.of(cache.stored):
                if not cache.owns_memory:
                    raise NoKVCacheRunError(f"the program stores the caches as {port.dtype}")
                try:
                    cache.convert(port.dtype.np)
                except OverflowError as e:
                    raise NoKVCacheRunError(str(e)) from e
            memory[port.slot] = cache.tensor.buffer
        return memory

    def prepare_next(
        self, path: ExecutionPath, feeds: Mapping[str, Any], sizes: tuple[int, ...], is_described: bool = True
    ) -> None:
        """Prepare the fast path for the next run, if its sizes follow from this run as these from the last.

        is_described: the inputs of such runs are known.
        """
        length = max(c.length for n, c in self.caches.items() if n in path.record.lengths)
        last, self._last = self._last, (path.key, sizes, length)
        if self.fixed_size or last is None or last[0] is not path.key or not is_described or length <= last[2]:
            return
        steps = [n - m for n, m in zip(sizes, last[1], strict=True)]
        steps[path.record.capacity] = 0
        runs = find_dynamic_runs(path.compiled, sizes, steps, length - last[2], length, path.record.capacity)
        fed = {n: v for n, v in feeds.items() if n not in self.caches}
        if runs is not None and all(type(v) is np.ndarray for v in fed.values()):
            self._fast_path = DecodeFastPath(path, runs, sizes)
