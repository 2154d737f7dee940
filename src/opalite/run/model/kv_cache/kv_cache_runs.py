"""KVCacheRuns: runs of a model whose caches stay where they are, what is new being appended to them in place.

A run goes on like the last one (decode_fast_path.py), or by a plan from the cache (kv_cache_plans.py), or by what is
imported now (kv_cache_import.py), which a process that has plans does without.
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
from .decode_fast_path import DecodeFastPath, find_dynamic_parameters, kept_numbers, output_of

if TYPE_CHECKING:
    from ..onnx_model import OnnxModel
    from .kv_cache_plans import KVCachePlan

Array = np.ndarray[Any, Any]


class NoKVCacheRunError(Exception):
    """Why a model's caches cannot stay where they are: a signal to whoever then feeds them as arrays."""


@dataclass(frozen=True)
class Way:
    """What a run goes through. key: what `compiled` belongs to in `executables`. given: what sizes alone decide."""

    executables: ExecutableCache
    key: Hashable
    compiled: Compiled
    record: KVCacheSpec
    given: ShapeTensors | None


class KVCacheRuns:
    """How runs of a model go on caches of a state. Stands for the model in a session's run.

    caches: of the next run, by the input that each is. filled: those that do not grow, but are written into.
    """

    def __init__(
        self, model: OnnxModel | CachedModel, presents: Mapping[str, str], filled: Collection[str] = ()
    ) -> None:
        """presents: the output that each cache becomes, by the input that it is."""
        self._model, self.presents, self.filled = model, presents, frozenset(filled)
        self.caches: Mapping[str, GrowableDeviceTensor] = {}
        self._growing: DecodeFastPath | None = None  # how runs like the last one go
        self._found: tuple[KVCachePlan, tuple[int, ...]] | None = None  # for feeds that were checked
        self._last: tuple[Hashable, tuple[int, ...], int] | None = None  # what ran, with its sizes, and length

    @property
    def goes_on(self) -> bool:
        """Whether runs like the last one are known to go on from it."""
        return self._growing is not None

    def twin(self) -> KVCacheRuns:
        """The same for another state."""
        other = KVCacheRuns(self._model, self.presents, self.filled)
        other._growing = None if self._growing is None else self._growing.twin()
        other._last = self._last
        return other

    @property
    def imported(self) -> OnnxModel:
        """The model as it is imported."""
        return self._model.imported() if isinstance(self._model, CachedModel) else self._model

    def check_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """All of the model's feeds, checked; or those given, where runs like the last one need no more."""
        growing = self._growing
        if growing is not None and growing.serves(feeds, self.caches):
            return feeds
        self._growing = None
        past = {
            n: GrowableTensor(t.dtype, t.shape, t.axis, t.capacity, self.presents[n], n not in self.filled, t.is_int8)
            for n, t in self.caches.items()
        }
        whole = {**feeds, **past}
        model = self._model
        self._found = None if not isinstance(model, CachedModel) else model.find_state(whole)
        return whole if self._found is not None else self.imported.check_feeds(whole)

    def run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        """The model's outputs in order, None for the caches, which have grown then; and what the run did.

        NotAppendedError, before anything has run, where the model is not made so.
        """
        growing = self._growing
        if growing is not None:
            with RunLockHold(request.lock) as turn:
                turn.take()
                found = growing.run(feeds, self.caches, request.targets, request.unread)
            if found is not None:
                return found
            self._growing = None
            feeds = self.check_feeds(feeds)
        if self._found is not None:
            found = self._run_kept(*self._found, feeds, request)
            if found is not None:
                return found
            feeds = self.imported.check_feeds(feeds)
        from .kv_cache_import import run_imported  # with onnx, which plans do without

        return run_imported(self, feeds, request)

    def run_ahead(
        self, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str], request: RunRequest
    ) -> tuple[list[list[Any]], RunTrace] | None:
        """Outputs of several runs of which none is waited for before the next (Growing.run_ahead)."""
        growing = self._growing
        if growing is None:
            return None
        with RunLockHold(request.lock) as turn:
            turn.take()
            return growing.run_ahead(feeds, self.caches, links, request.unread)

    def _run_kept(
        self, plan: KVCachePlan, sizes: tuple[int, ...], feeds: Mapping[str, Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace] | None:
        """A run by a plan from the cache; None where halves did not hold what it computed, and nothing has changed."""
        trace = RunTrace(run_record=RunRecord())
        record, given = plan.record, plan.given
        with RunLockHold(request.lock) as turn:
            compiled = plan.compiled(sizes, trace)
            values = {**feeds, **({} if given is None else given.at(sizes))}
            turn.take()
            way = Way(plan.executables, plan.variant, compiled, record, given)
            outputs, spent = self.execute(way, sizes, [values[n] for n in record.inputs], request)
            trace.add(spent)
            if compiled.may_overflow and not is_finite(outputs):
                assert isinstance(self._model, CachedModel)
                self._model.refuse_state(plan)
                return None
            compiled.is_proven = True
            self.tell(trace, way, sizes, record.lengths_at(sizes))
        self.grow(way, feeds, sizes)
        by_number = dict(enumerate(outputs))
        return [output_of(s, by_number, feeds, values) for s in record.outputs.values()], trace

    def keep(
        self,
        record: KVCacheSpec,
        template: Template,
        program: Template,
        notes: tuple[str, ...],
        feeds: Mapping[str, Any],
    ) -> None:
        """Have later processes find `template`, a copy of `program`, for runs on such `feeds`."""
        if isinstance(self._model, CachedModel):
            self._model.keep_state(record, template, program, notes, feeds)

    def forget(self, feeds: Mapping[str, Any]) -> None:
        """No process is to find a plan for runs on such `feeds`."""
        if isinstance(self._model, CachedModel):
            self._model.forget_states(feeds)

    def tell(self, trace: RunTrace, way: Way, sizes: tuple[int, ...], lengths: Mapping[str, int]) -> None:
        """A run of `sizes` is believed: caches are as long as it says."""
        assert trace.run_record is not None
        at = way.compiled.at(sizes)
        trace.run_record.add(way.compiled.executable)
        trace.run_record.note(*way.compiled.notes, *way.compiled.lasting, *(at.notes if at is not None else ()))
        for name, length in lengths.items():
            self.caches[name].length = length

    def execute(
        self, way: Way, sizes: tuple[int, ...], feeds: Sequence[Any], request: RunRequest
    ) -> tuple[list[Any], RunTrace]:
        """Outputs of a graph, None for those that are caches, which stay as they were; and the trace. feeds: of all
        that the graph reads."""
        compiled, record = way.compiled, way.record
        at = compiled.at(sizes)
        assert at is not None
        executable = compiled.executable
        lasting, made = ({pair[i] for pair in record.reserved} for i in (0, 1))
        arrays = [v for i, v in enumerate(feeds) if i not in lasting]
        # Halves that may overflow are looked at until a first run has proved them, as in other runs.
        keeps = request.targets and (compiled.is_proven or not compiled.may_overflow)
        targets = kept_numbers(record, request.targets) if keeps else {}
        others = [o for o in range(len(at.program.outputs) + len(made)) if o not in made]
        kept = {others.index(o): target for o, target in targets.items() if o not in made}
        with executable.entered(at.program, self._memory(record, at.program)):
            found, spent = executable.run(arrays, kept)
        outputs: list[Any] = [None] * (len(others) + len(made))
        for number, value in zip(others, found, strict=True):
            outputs[number] = value
        return outputs, spent

    def _memory(self, record: KVCacheSpec, program: Program) -> dict[int, Any]:
        """Where the caches lie, by slot, stored as the program has them."""
        memory = {}
        for port, (number, _) in zip(program.reserved, record.reserved, strict=True):
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

    def grow(self, way: Way, feeds: Mapping[str, Any], sizes: tuple[int, ...], goes_on: bool = True) -> None:
        """Be ready for the next run, if it goes on from this one as this one did from the last. goes_on: it is known
        what runs like this one take."""
        length = max(c.length for n, c in self.caches.items() if n in way.record.lengths)
        last, self._last = self._last, (way.key, sizes, length)
        if self.filled or last is None or last[0] is not way.key or not goes_on or length <= last[2]:
            return
        steps = [n - m for n, m in zip(sizes, last[1], strict=True)]
        steps[way.record.capacity] = 0
        dynamic = find_dynamic_parameters(way.compiled, sizes, steps, length - last[2], length, way.record.capacity)
        fed = {n: v for n, v in feeds.items() if n not in self.caches}
        if dynamic is not None and all(type(v) is np.ndarray for v in fed.values()):
            self._growing = DecodeFastPath(way, dynamic, sizes)
