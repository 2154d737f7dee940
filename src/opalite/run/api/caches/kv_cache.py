"""KVCaches: the KV caches of a state, in device memory with spare capacity, so that runs append in place."""

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
    from ...model.onnx_model import OnnxModel
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
Axis = tuple[str, int]
"""An input and the index of an axis."""
_SPARE = 2  # runs between the last copy into larger memory and the run that needs it


class KVCaches:
    """Allocates, enlarges and tracks the caches of one State.

    pairs: the state pairs that are caches, growing or of fixed size. refusal: the reason why runs cannot append in
    place, '' if they can.
    """

    def __init__(
        self,
        session: InferenceSession,
        pairs: Sequence[StatePair],
        reserve: int,
        *,
        as_int8: bool = False,
        as_arrays: bool = False,
    ) -> None:
        """reserve: positions by which the capacity grows.

        as_int8: store float rows as int8 with scales. as_arrays: callers see the caches as arrays after each run, and
        may change them.
        """
        self._session = session
        self._reserve, self._as_int8, self._as_arrays = reserve, as_int8, as_arrays
        self._set_pairs(p for p in pairs if not p.is_cross)
        self._growth: set[Axis] | None = None  # input axes whose size has equalled the growth in every run so far
        # The state after the last run, its caches, and its other values.
        self._known: tuple[Any, dict[str, GrowableDeviceTensor], dict[str, Any]] | None = None
        # Caches, each with a larger copy that will replace it.
        self._prepared: dict[str, tuple[GrowableDeviceTensor, GrowableDeviceTensor]] = {}
        self._spare: dict[str, GrowableDeviceTensor] = {}  # caches of a finished sequence, for reuse
        self.refusal = ""
        if not self.pairs:
            self.refusal = "no part of the state is a cache"
        elif isinstance(session._model, BundleModel):
            self.refusal = "the model is a bundle"

    def _set_pairs(self, pairs: Iterable[StatePair]) -> None:
        self.pairs = list(pairs)
        self._times = {p.past: p.time for p in self.pairs if p.time is not None}  # growing axis by input
        self._first = next(iter(self._times), None)

    def drop_fixed_size(self) -> bool:
        """Remove caches of fixed size, which runs cannot write in place; returns whether growing caches remain."""
        grown = [p for p in self.pairs if p.time is not None]
        if not grown or len(grown) == len(self.pairs):
            return False
        self._set_pairs(grown)
        self.__dict__.pop("runs", None)
        return True

    @cached_property
    def runs(self) -> KVCacheRuns:
        """The runs that append to the caches in place."""
        model = kv_cache_model(self._session)
        assert model is not None
        filled = [p.past for p in self.pairs if p.time is None]
        runs = KVCacheRuns(model, {p.past: p.present for p in self.pairs}, filled)
        runs.as_arrays = self._as_arrays
        return runs

    def fork(self) -> KVCaches:
        """A copy of these KVCaches for another state."""
        other = KVCaches.__new__(KVCaches)
        other.__dict__.update(self.__dict__)
        other._prepared, other._spare = {}, {}
        if not self.refusal:
            other.runs = self.runs.copy()
        return other

    def reserve(
        self, given: Mapping[str, Any], past: Mapping[str, Any]
    ) -> tuple[dict[str, GrowableDeviceTensor], dict[str, Any]]:
        """The caches of `past` with capacity for the run on `given`, and the other values of `past`.

        A full cache is copied to memory for at least `reserve` more positions and at least a quarter more, so that the
        amortised cost of copies is small.
        """
        known = self._known
        if known is not None and past is known[0]:
            first = None if self._first is None else known[1][self._first]
            if first is None or first.length + self._growth_of(given) < first.capacity:
                return known[1:]
        capacity = self._capacity_for(given, [past[n] for n in self._times], list(self._times.values()))
        caches: dict[str, GrowableDeviceTensor] = {}
        for p in self.pairs:
            value = past[p.past]
            if isinstance(value, GrowableDeviceTensor):
                is_full = p.time is not None and value.capacity != capacity
                caches[p.past] = self._enlarged(p.past, value, capacity) if is_full else value
                continue
            array = np.asarray(value)
            axis = max(array.ndim - 2, 0) if p.time is None else p.time
            size = array.shape[axis] if p.time is None else capacity
            cache = self._spare.pop(p.past, None)
            if cache is None or not cache.reuse_as(array.shape, array.dtype, axis, size):
                stored = np.dtype(np.int8) if self._as_int8 and _has_rows(array, axis) else None
                cache = GrowableDeviceTensor(self._session.runtime, array.shape, array.dtype, axis, size, stored=stored)
            caches[p.past] = cache
            if array.size:
                cache.write(array)
        return caches, {n: v for n, v in past.items() if n not in caches}

    def _capacity_for(self, given: Mapping[str, Any], values: Sequence[Any], axes: Sequence[int]) -> int:
        """The capacity of growing caches for the run on `given`, in positions."""
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
        """The next capacity after `held` that holds `needed` positions."""
        return -(-max(needed, held + held // 4) // self._reserve) * self._reserve

    def capacity_of(self, length: int) -> int:
        """The capacity of caches that begin with `length` positions."""
        return self._larger_capacity(0, length + 1)

    def _enlarged(self, name: str, cache: GrowableDeviceTensor, capacity: int) -> GrowableDeviceTensor:
        """A copy of the cache with a larger capacity: the prepared one if it fits, else a new one."""
        old, new = self._prepared.pop(name, (None, None))
        if old is not cache or new is None or (new.capacity, new.stored) != (capacity, cache.stored):
            return cache.copy(capacity)
        if self._as_arrays:
            new.length = 0
        new.append_from(cache)
        return new

    def _enlarge_ahead(self, caches: Mapping[str, GrowableDeviceTensor], grown: int) -> None:
        """Prepare the larger copy of one cache, if the capacity is nearly used up.

        The copies are spread over the remaining runs, so that no single run waits for all of them.
        """
        if self._first is None or grown < 1:
            return
        first = caches[self._first]
        if first.capacity - first.length > (len(self._times) + _SPARE) * grown:
            return
        name = next((n for n in self._times if self._prepared.get(n, (None,))[0] is not caches[n]), None)
        if name is not None:
            with suppress(DeviceMemoryError):  # the run that needs the memory raises it
                cache = caches[name]
                self._prepared[name] = (
                    cache,
                    cache.copy(self._larger_capacity(cache.capacity, cache.capacity + grown + 1)),
                )

    def drop_prepared(self) -> None:
        """Drop the prepared copies, which are outdated after caches were truncated."""
        self._prepared = {}

    def release(self, values: Mapping[str, Any]) -> None:
        """Keep the caches of a finished sequence for reuse by the next one."""
        self.drop_prepared()
        self._spare = {n: v for n, v in values.items() if isinstance(v, GrowableDeviceTensor)}

    def _growth_of(self, given: Mapping[str, Any]) -> int:
        """The number of positions that the run on `given` adds to caches, or an upper bound."""
        known = [d for d in (_size(given, *p) for p in self._growth or ()) if d is not None]
        return min(known) if known else max((d for v in given.values() for d in np.shape(v)), default=1)

    def match(self, caches: Mapping[str, GrowableDeviceTensor], now: Any) -> bool:
        """Whether the last `record_growth` was of this state and these caches."""
        return self._known is not None and self._known[0] is now and self._known[1] is caches

    def record_growth(
        self, given: Mapping[str, Any], grown: int, caches: dict[str, GrowableDeviceTensor], now: Any
    ) -> None:
        """Record that a run on `given` has added `grown` positions to `caches`, which are part of the state `now`."""
        if self._known is None or self._known[0] is not now:
            self._known = now, caches, {n: v for n, v in now.items() if n not in caches}
        self._enlarge_ahead(caches, grown)
        growth = self._growth
        if growth and (len(growth) == 1 or all(_size(given, *p) == grown for p in growth)):
            return
        places = {(n, i) for n, v in given.items() for i, d in enumerate(np.shape(v)) if d == grown}
        self._growth = places if self._growth is None else self._growth & places or places


def _size(given: Mapping[str, Any], name: str, axis: int) -> int | None:
    """The size of an input along an axis; None if the input or the axis is missing."""
    shape = np.shape(given[name]) if name in given else ()
    return shape[axis] if axis < len(shape) else None


def _has_rows(array: Array, axis: int) -> bool:
    """Whether a cache has float rows that int8 can store, one or more at each position along `axis`."""
    return array.dtype in (np.float32, np.float16) and 1 < axis + 1 < array.ndim and not refuse_row(array.shape[-1])


def kv_cache_model(session: InferenceSession) -> OnnxModel | None:
    """The session's model, or the one that precision 'auto' chose; None if runs cannot append to caches in place."""
    model = session._model if session._auto is None else session._auto.chosen_model()
    return None if isinstance(model, BundleModel) else cast("OnnxModel", model)


def as_array(value: Any) -> Array:
    """A state value as an array on the host."""
    array: Array = value.numpy() if isinstance(value, GrowableDeviceTensor) else np.asarray(value)
    return array


def constant(array: Array) -> Array:
    """A read-only copy of `array`, which a session uploads only once."""
    if array.base is None and not array.flags.writeable:
        return array
    found = array.copy()
    found.setflags(write=False)
    return found


def cut(value: Any, axis: int, length: int) -> Any:
    """Truncate a cache to its first `length` positions along `axis`."""
    if isinstance(value, GrowableDeviceTensor):
        value.length = length
        return value
    return np.ascontiguousarray(value[(slice(None),) * axis + (slice(length),)])
