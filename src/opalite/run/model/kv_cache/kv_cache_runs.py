"""KVCacheRuns: runs of a model whose KV caches stay on the device, where new positions are appended in place.

A run repeats the last decode step (decode_fast_path.py), or takes a plan from the cache folder (plans/plan_store.py),
or imports the model (kv_cache_import.py).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....cl.memory.staging_buffer import StagingBuffer
from ....ir.dtype import DType
from ....ir.growable_tensor import GrowableTensor
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.program import Program
from ....plan.template.shape_tensors import ShapeTensors
from ...execute.run_trace import RunTrace
from ..background.respecialize_policy import Sizes
from ..executable_cache import Compiled, ExecutableCache
from ..model_run import ModelRun, is_finite
from ..run_lock import Access, RunLockHold
from ..run_request import RunRequest
from .decode_fast_path import DecodeFastPath, find_dynamic_runs, kept_numbers, output_of

if TYPE_CHECKING:
    from ..onnx_model import OnnxModel
    from ..plans.stored_plan import StoredPlan
    from ..segment_runs import SegmentRuns

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

    caches: of the next run, by input. fixed_size: inputs of caches that are written into and do not grow. as_arrays:
    callers see the caches as arrays after each run.
    """

    def __init__(self, model: OnnxModel, presents: Mapping[str, str], fixed_size: Collection[str] = ()) -> None:
        """presents: by a cache's input, the output that is its next value."""
        self._model, self.presents, self.fixed_size = model, presents, frozenset(fixed_size)
        self.caches: Mapping[str, GrowableDeviceTensor] = {}
        self.as_arrays = False
        self._fast_path: DecodeFastPath | None = None  # of runs like the last one
        self._found: tuple[StoredPlan, Sizes] | None = None  # the plan and sizes for feeds that were checked
        self._last: tuple[Hashable, Sizes, int] | None = None  # key, sizes and cache length of the last run

    @property
    def has_fast_path(self) -> bool:
        """Whether the next decode step can take the fast path."""
        return self._fast_path is not None

    def copy(self) -> KVCacheRuns:
        """A copy for another state."""
        other = KVCacheRuns(self._model, self.presents, self.fixed_size)
        other._fast_path = None if self._fast_path is None else self._fast_path.copy()
        other._last, other.as_arrays = self._last, self.as_arrays
        return other

    @property
    def imported(self) -> SegmentRuns:
        """The imported model."""
        return self._model.imported()

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
        store = self._model.store
        self._found = None if store is None else store.find(whole, self._model.is_imported)
        return whole if self._found is not None else self.imported.imported.check_feeds(whole)

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
            feeds = self.imported.imported.check_feeds(feeds)
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
        self, plan: StoredPlan, sizes: Sizes, feeds: Mapping[str, Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace] | None:
        """A run by a plan from the cache folder; None if half storage overflowed, with caches as before."""
        record, given, variant = plan.record, plan.given, plan.variant
        assert record is not None
        if self.as_arrays and record.array_refusal:
            raise NoKVCacheRunError(record.array_refusal)
        with ModelRun(request) as model_run:
            compiled, _ = plan.executables.find_or_make(
                variant, sizes, lambda: plan.compiled(variant, sizes, model_run.trace)
            )
            values = {**feeds, **({} if given is None else given.at(sizes))}
            path = ExecutionPath(plan.executables, variant, compiled, record, given)
            outputs = self.execute(path, sizes, [values[n] for n in record.inputs], model_run)
            if compiled.may_overflow and not is_finite(outputs):
                assert self._model.store is not None
                self._model.store.discard(plan)
                return None
            compiled.is_proven = True
            self.record(model_run, path, sizes, record.lengths_at(sizes))
        self.prepare_next(path, feeds, sizes)
        by_number = dict(enumerate(outputs))
        return [output_of(s, by_number, feeds, values) for s in record.outputs.values()], model_run.trace

    def record(self, model_run: ModelRun, path: ExecutionPath, sizes: Sizes, lengths: Mapping[str, int]) -> None:
        """Record a checked run, and set the lengths of the caches."""
        model_run.note(path.compiled, path.compiled.at(sizes))
        for name, length in lengths.items():
            self.caches[name].length = length

    def execute(self, path: ExecutionPath, sizes: Sizes, feeds: Sequence[Any], model_run: ModelRun) -> list[Any]:
        """Outputs of a graph, None for caches, whose lengths do not change. feeds: all its inputs."""
        compiled, record = path.compiled, path.record
        at = compiled.at(sizes)
        assert at is not None
        reserved, made = ({pair[i] for pair in record.input_output_aliases} for i in (0, 1))
        arrays = [v for i, v in enumerate(feeds) if i not in reserved]
        # Outputs of the first run stay on the host if half storage may overflow, because it is checked.
        targets = model_run.request.targets if compiled.is_proven or not compiled.may_overflow else {}
        others = [o for o in range(len(at.program.outputs) + len(made)) if o not in made]
        kept = {others.index(o): target for o, target in kept_numbers(record, targets).items() if o not in made}
        model_run.acquire()
        state = self._buffers(record, at.program)
        ran = model_run.run(compiled, at, Access.EXCLUSIVE, lambda: arrays, kept, state=state)
        assert ran is not None, "nothing releases executables of runs on caches"
        outputs: list[Any] = [None] * (len(others) + len(made))
        for number, value in zip(others, ran[0], strict=True):
            outputs[number] = value
        return outputs

    def _buffers(self, record: KVCacheSpec, program: Program) -> dict[int, StagingBuffer]:
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
            memory[port.slot] = cache.tensor.staging
        return memory

    def prepare_next(
        self, path: ExecutionPath, feeds: Mapping[str, Any], sizes: Sizes, is_described: bool = True
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


class NotQueuedAheadError(Exception):
    """No step can be queued before the previous step has ended; the caller runs them one by one instead."""


class MultiStepRuns:
    """Takes the model's place in a session's run. feeds: of each step. links: by input, the previous step's output."""

    def __init__(self, runs: KVCacheRuns, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str]) -> None:
        self._runs, self._feeds, self._links = runs, feeds, links

    def check_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds of the first step; steps are checked as they are queued."""
        return feeds

    def run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        """The model's outputs of each step that was queued, and the trace of all. NotQueuedAheadError for none."""
        found = self._runs.run_in_flight([feeds, *self._feeds[1:]], self._links, request)
        if found is None:
            raise NotQueuedAheadError
        return found
