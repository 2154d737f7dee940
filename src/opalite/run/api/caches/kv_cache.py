"""KVCaches: the growing part of a state in memory that is reserved in steps, so that runs append to it in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....errors import DeviceMemoryError
from ....ir.constants.int8_rows import refuse_row
from ...model.bundle_model import BundleModel
from ...model.kv_cache.kv_cache_runs import KVCacheRuns
from .match_state_outputs import StatePair

if TYPE_CHECKING:
    from ...model.cached_model import CachedModel
    from ...model.onnx_model import OnnxModel
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
Place = tuple[str, int]
"""An axis of an input."""
_SPARE = 2  # runs between the last copy and the one that needs it


class KVCaches:
    """Where the caches of a state go.

    pairs: those that grow, and those that may be written into where they lie. refusal: why none is appended to in
    place; '' if they may be.
    """

    def __init__(self, session: InferenceSession, pairs: Sequence[StatePair], reserve: int, *, as_int8: bool) -> None:
        """reserve: positions in a step. as_bytes: keep rows of floats as int8."""
        self._session = session
        self._reserve, self._as_int8 = reserve, as_int8
        self._set_pairs(p for p in pairs if not p.is_cross)
        self._growth: set[Place] | None = None  # sizes of inputs by which each run so far has grown
        self._known: tuple[Any, dict[str, GrowableDeviceTensor], dict[str, Any]] | None = None
        self._prepared: dict[
            str, tuple[GrowableDeviceTensor, GrowableDeviceTensor]
        ] = {}  # caches, and what takes their place next
        self._spare: dict[str, GrowableDeviceTensor] = {}  # of a sequence that is over
        self.refusal = ""
        if not self.pairs:
            self.refusal = "nothing of the state is a cache"
        elif isinstance(session._model, BundleModel):
            self.refusal = "it is run from a bundle"

    def _set_pairs(self, pairs: Iterable[StatePair]) -> None:
        self.pairs = list(pairs)
        self._times = {p.past: p.time for p in self.pairs if p.time is not None}  # of those that grow
        self._first = next(iter(self._times), None)

    def drop_fixed_size(self) -> bool:
        """Leave out what does not grow, after it was seen not to be written into alone; whether there is a rest."""
        grown = [p for p in self.pairs if p.time is not None]
        if not grown or len(grown) == len(self.pairs):
            return False
        self._set_pairs(grown)
        self.__dict__.pop("runs", None)
        return True

    @cached_property
    def runs(self) -> KVCacheRuns:
        """How runs go on the caches."""
        model = kv_cache_model(self._session)
        assert model is not None
        filled = [p.past for p in self.pairs if p.time is None]
        return KVCacheRuns(model, {p.past: p.present for p in self.pairs}, filled)

    def twin(self) -> KVCaches:
        """The same for another state."""
        other = KVCaches.__new__(KVCaches)
        other.__dict__.update(self.__dict__)
        other._prepared, other._spare = {}, {}
        if not self.refusal:
            other.runs = self.runs.twin()
        return other

    def reserve(
        self, given: Mapping[str, Any], past: Mapping[str, Any]
    ) -> tuple[dict[str, GrowableDeviceTensor], dict[str, Any]]:
        """The caches of `past` with room for the run on `given`, and what else there is in `past`.

        A cache for which there is no room gets more, for a step at least and a quarter more than it had, so that
        copying it counts for little.
        """
        known = self._known
        if known is not None and past is known[0]:
            first = None if self._first is None else known[1][self._first]
            if first is None or first.length + self._growth_of(given) < first.capacity:
                return known[1:]
        held = self._capacity_for(given, [past[n] for n in self._times], list(self._times.values()))
        caches: dict[str, GrowableDeviceTensor] = {}
        for p in self.pairs:
            value = past[p.past]
            if isinstance(value, GrowableDeviceTensor):
                moves = p.time is not None and value.capacity != held
                caches[p.past] = self._enlarged(p.past, value, held) if moves else value
                continue
            array = np.asarray(value)
            axis = max(array.ndim - 2, 0) if p.time is None else p.time
            room = array.shape[axis] if p.time is None else held
            spare = self._spare.pop(p.past, None)
            if spare is None or not spare.reuse_as(array.shape, array.dtype, axis, room):
                stored = np.dtype(np.int8) if self._as_int8 and _has_rows(array, axis) else None
                spare = GrowableDeviceTensor(self._session.runtime, array.shape, array.dtype, axis, room, stored=stored)
            caches[p.past] = spare
            if array.size:
                spare.write(array)
        return caches, {n: v for n, v in past.items() if n not in caches}

    def _capacity_for(self, given: Mapping[str, Any], values: Sequence[Any], axes: Sequence[int]) -> int:
        """Positions to reserve for caches that grow."""
        if not values:
            return 0
        lengths = (
            v.length if isinstance(v, GrowableDeviceTensor) else v.shape[i] for v, i in zip(values, axes, strict=True)
        )
        needed = max(lengths) + self._growth_of(given) + 1
        held = max(v.capacity if isinstance(v, GrowableDeviceTensor) else 0 for v in values)
        if needed <= held:
            return held
        prepared = max(
            (new.capacity for old, new in self._prepared.values() if any(old is v for v in values)), default=0
        )
        return prepared if prepared >= needed else self._larger_capacity(held, needed)

    def _larger_capacity(self, held: int, needed: int) -> int:
        """Positions to reserve in place of `held` where `needed` are."""
        return -(-max(needed, held + held // 4) // self._reserve) * self._reserve

    def _enlarged(self, name: str, cache: GrowableDeviceTensor, capacity: int) -> GrowableDeviceTensor:
        """The cache in memory for more, which may have been prepared."""
        old, new = self._prepared.pop(name, (None, None))
        if old is not cache or new is None or (new.capacity, new.stored) != (capacity, cache.stored):
            return cache.copy(capacity)
        new.follow(cache)
        return new

    def _enlarge_ahead(self, caches: Mapping[str, GrowableDeviceTensor], grown: int) -> None:
        """Copy one more cache to memory for more, when as few runs like the last one are left as there are caches: so
        that none of them takes the time that all copies take."""
        if self._first is None or grown < 1:
            return
        first = caches[self._first]
        if first.capacity - first.length > (len(self._times) + _SPARE) * grown:
            return
        name = next((n for n in self._times if self._prepared.get(n, (None,))[0] is not caches[n]), None)
        if name is not None:
            with suppress(DeviceMemoryError):  # which the run that needs it then tells
                cache = caches[name]
                self._prepared[name] = (
                    cache,
                    cache.copy(self._larger_capacity(cache.capacity, cache.capacity + grown + 1)),
                )

    def drop_prepared(self) -> None:
        """Caches have been cut: what was copied ahead is no longer theirs."""
        self._prepared = {}

    def release(self, values: Mapping[str, Any]) -> None:
        """A sequence is over: the next one may have its memory."""
        self.drop_prepared()
        self._spare = {n: v for n, v in values.items() if isinstance(v, GrowableDeviceTensor)}

    def _growth_of(self, given: Mapping[str, Any]) -> int:
        """By how many positions the run on `given` lets caches grow, as far as can be told; else more than that."""
        known = [d for d in (_size(given, *p) for p in self._growth or ()) if d is not None]
        return min(known) if known else max((d for v in given.values() for d in np.shape(v)), default=1)

    def match(self, caches: Mapping[str, GrowableDeviceTensor], now: Any) -> bool:
        """Whether the state `now` is known to hold these caches, by what `record_growth` was told last."""
        return self._known is not None and self._known[0] is now and self._known[1] is caches

    def record_growth(
        self, given: Mapping[str, Any], grown: int, caches: dict[str, GrowableDeviceTensor], now: Any
    ) -> None:
        """Take note of how many positions a run on `given` has added to `caches`, which are part of the state `now`."""
        if self._known is None or self._known[0] is not now:
            self._known = now, caches, {n: v for n, v in now.items() if n not in caches}
        self._enlarge_ahead(caches, grown)
        growth = self._growth
        if growth and (len(growth) == 1 or all(_size(given, *p) == grown for p in growth)):
            return
        places = {(n, i) for n, v in given.items() for i, d in enumerate(np.shape(v)) if d == grown}
        self._growth = places if self._growth is None else self._growth & places or places


def _size(given: Mapping[str, Any], name: str, axis: int) -> int | None:
    """The size of an input along an axis, if there is such."""
    shape = np.shape(given[name]) if name in given else ()
    return shape[axis] if axis < len(shape) else None


def _has_rows(array: Array, axis: int) -> bool:
    """Whether a cache holds rows of floats that may be int8, whole at each position along `axis`."""
    return array.dtype in (np.float32, np.float16) and 1 < axis + 1 < array.ndim and not refuse_row(array.shape[-1])


def kv_cache_model(session: InferenceSession) -> CachedModel | OnnxModel | None:
    """The session's model, of precision 'auto' what was chosen so far; None where it runs on no caches in place."""
    model = session._model if session._auto is None else session._auto.chosen_model()
    return None if isinstance(model, BundleModel) else cast("CachedModel | OnnxModel", model)


def as_array(value: Any) -> Array:
    """A piece of state on the host."""
    array: Array = value.numpy() if isinstance(value, GrowableDeviceTensor) else np.asarray(value)
    return array


def constant(array: Array) -> Array:
    """The same contents in an array that nobody can change, so that it crosses to a device once."""
    if array.base is None and not array.flags.writeable:
        return array
    found = array.copy()
    found.setflags(write=False)
    return found


def cut(value: Any, axis: int, length: int) -> Any:
    """Its first positions."""
    if isinstance(value, GrowableDeviceTensor):
        value.length = length
        return value
    return np.ascontiguousarray(value[(slice(None),) * axis + (slice(length),)])
