"""KV caches that plain runs take and return as arrays, kept in device memory from run to run.

Code for onnxruntime feeds each run the caches that the last run returned. Here they stay in growable memory, as those
of a State do, and runs append in place. What a run returns are views of this memory, or of a mirror on the host.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....cl.memory.growable_host_arrays import GrowableHostArrays, MirrorUpdates
from ....errors import DeviceLostError, DeviceMemoryError
from ...execute.run_trace import RunTrace
from ...model.kv_cache.kv_cache_runs import NoKVCacheRunError
from ...model.run_request import RunRequest
from ..values.ort_value import OrtValue
from .kv_cache import KVCaches
from .match_state_outputs import StatePair

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)
_RESERVED = 256  # positions by which memory grows
_MOST = 8  # sequences in memory
_TRIED = 4  # first runs of sequences that no further run followed


class ArrayKVCaches:
    """The growing caches of a session's plain runs. Thread-safe.

    A run appends in place if it is fed the arrays of an earlier run, or arrays as long as those that were returned last
    (a beam search has reordered them), whose contents are then copied, or empty arrays, with which a sequence begins.

    presents: the outputs that are caches.
    """

    def __init__(self, session: InferenceSession, pairs: Sequence[StatePair]) -> None:
        """pairs: the growing caches."""
        self._session, self._pairs = session, pairs
        self._names = [p.past for p in pairs]
        self.presents = {p.present for p in pairs}
        inputs = {a.name: a for a in session.get_inputs()}
        outputs = [a.name for a in session.get_outputs()]
        self._inputs = [inputs[n] for n in self._names]
        self._places = [outputs.index(p.present) for p in pairs]
        self._lock = threading.Lock()
        self._sequences: list[_Sequence] = []  # the one used last at the end
        self._lengths: deque[int] = deque(maxlen=_MOST)  # of caches that were returned last
        self._begun = 0  # sequences begun since one went on

    def run(
        self, feeds: Mapping[str, Any], picked: Collection[int], request: RunRequest
    ) -> tuple[list[Any], RunTrace] | None:
        """All outputs and the trace of a run that appends in place, caches only if `picked`; None for other runs."""
        fed = []
        for name in self._names:
            value = feeds.get(name)
            if type(value) is OrtValue:
                value = value.value
            if type(value) is not np.ndarray:
                return None
            fed.append(value)
        sequence = self._claim(fed, picked)
        if sequence is None:
            return None
        try:
            rest = {n: v.value if type(v) is OrtValue else v for n, v in feeds.items() if n not in sequence.names}
            outputs, trace = sequence.run(self._session, rest, fed, request)
            length = sequence.length
            self._hand_out(sequence, outputs, picked, fed)
        except NoKVCacheRunError as e:
            _log.info("caches are copied in each run: %s", e)
            self._session._array_caches = None
            return None
        except (DeviceMemoryError, DeviceLostError):
            self.clear()  # the caller's arrays are in host memory
            return None
        finally:
            sequence.is_busy = False
        self._lengths.append(length)
        return outputs, trace

    def record(self, feeds: Mapping[str, Any], outputs: Sequence[Any]) -> None:
        """Record a run that copied its caches. Those of a fixed size are not followed."""
        past, present, axis = feeds.get(self._names[0], ()), outputs[self._places[0]], self._pairs[0].time
        before, after = np.shape(past.value if type(past) is OrtValue else past), np.shape(present)
        if axis is not None and len(before) == len(after) > axis and after[axis] > before[axis]:
            self._lengths.append(after[axis])

    def clear(self) -> None:
        """Forget all sequences. Arrays that callers hold remain valid."""
        with self._lock:
            self._sequences = []

    def _claim(self, fed: Sequence[Array], picked: Collection[int]) -> _Sequence | None:
        """The sequence that the run continues or begins, as the caller's own until it is no longer busy."""
        length = self._length_of(fed)
        if length is None:
            return None
        with self._lock:
            is_known = length > 0 and length in self._lengths
            for sequence in reversed(self._sequences) if length else ():
                if sequence.has(fed):
                    is_known = True
                    if not sequence.is_busy and sequence.goes_on_at(length):
                        self._begun = 0
                        return self._use(sequence)
            if not is_known and (length or self._begun >= _TRIED or not self._may_begin()):
                return None
            if not self._picks_all(picked):
                return None
            self._begun = 0 if is_known else self._begun + 1
            sequence = self._unused()
            sequence.begin()
            return self._use(sequence)

    def _length_of(self, fed: Sequence[Array]) -> int | None:
        """The positions in the caches; None if they do not fit the model, or differ."""
        found: int | None = None
        for array, info, pair in zip(fed, self._inputs, self._pairs, strict=True):
            assert info.dtype is not None
            assert pair.time is not None
            if array.dtype != info.dtype.np or array.ndim != len(info.shape):
                return None
            if found is None:
                found = array.shape[pair.time]
            elif found != array.shape[pair.time]:
                return None
        return found

    def _may_begin(self) -> bool:
        """Whether sequences may begin here: precision 'auto' first checks plain runs."""
        auto = self._session._auto
        return auto is None or auto.is_decided

    def _picks_all(self, picked: Collection[int]) -> bool:
        return all(place in picked for place in self._places)

    def _use(self, sequence: _Sequence) -> _Sequence:
        sequence.is_busy = True
        self._sequences = [*(s for s in self._sequences if s is not sequence), sequence]
        return sequence

    def _unused(self) -> _Sequence:
        """A sequence whose arrays nobody holds, or a new one. Others that nobody holds are dropped."""
        unused = [s for s in self._sequences if s.is_unused]
        last = self._sequences[-1] if self._sequences else None
        kept = [s for s in self._sequences if s not in unused]
        self._sequences = kept[max(0, len(kept) - _MOST + 1) :]
        if unused:
            return unused[-1]
        if last is None:
            return _Sequence(KVCaches(self._session, self._pairs, _RESERVED, as_arrays=True), self._names)
        return _Sequence(last.caches.fork(), self._names)

    def _hand_out(self, sequence: _Sequence, outputs: list[Any], picked: Collection[int], fed: Sequence[Array]) -> None:
        """Put the picked caches in their places. If some are not picked, the sequence keeps its earlier length."""
        if self._picks_all(picked):
            arrays = sequence.advance(fed)
        else:
            arrays = sequence.arrays([place in picked for place in self._places])
            sequence.cut(fed[0].shape[self._pairs[0].time or 0])
        for place, array in zip(self._places, arrays, strict=True):
            outputs[place] = array


class _Sequence:
    """The caches of one sequence, or of a batch of sequences. is_busy: while a run uses it."""

    def __init__(self, caches: KVCaches, names: Sequence[str]) -> None:
        self.caches, self.names = caches, dict.fromkeys(names)
        self.is_busy = False
        self._values: dict[str, GrowableDeviceTensor] = {}
        self._shown: list[GrowableHostArrays] = []
        self._mirrors = MirrorUpdates()
        self._last: list[tuple[weakref.ref[Array], tuple[int, ...]]] = []  # arrays that the last run returned

    @property
    def length(self) -> int:
        """Positions in each cache."""
        return next(iter(self._values.values())).length

    @property
    def is_unused(self) -> bool:
        """Whether no array of it is held outside, and no run uses it."""
        return not self.is_busy and all(s.seen == 0 for s in self._shown)

    def has(self, fed: Sequence[Array]) -> bool:
        """Whether the arrays show the caches from the first position on."""
        if self._last and all(r() is a and a.shape == shape for (r, shape), a in zip(self._last, fed, strict=True)):
            return True
        return bool(self._shown) and all(s.has(a) for s, a in zip(self._shown, fed, strict=True))

    def goes_on_at(self, length: int) -> bool:
        """Cut to `length`, unless somebody else holds arrays that are longer; returns whether it was possible."""
        if length == self.length:
            return True
        if any(s.seen > 1 for s in self._shown):
            return False
        self.cut(length)
        return True

    def cut(self, length: int) -> None:
        """Keep the first `length` positions."""
        self.caches.drop_prepared()
        for shown in self._shown:
            shown.cut(length)

    def begin(self) -> None:
        """Forget the contents, and keep the memory."""
        for shown in self._shown:
            shown.cut(0)
        self.caches.release(self._values)
        self._values, self._last = {}, []

    def run(
        self, session: InferenceSession, given: Mapping[str, Any], fed: Sequence[Array], request: RunRequest
    ) -> tuple[list[Any], RunTrace]:
        """Outputs, None for caches, and trace of a run; `given` are the other inputs."""
        caches, _ = self.caches.reserve(given, self._values or dict(zip(self.names, fed, strict=True)))
        before = next(iter(caches.values())).length
        runs = self.caches.runs
        runs.caches = caches
        try:
            outputs, trace, _ = session._execute(given, request, runs)
        except BaseException:
            if self._values:
                self._values = caches
            else:
                self._shown = []
            raise
        self._values = caches
        self.caches.record_growth(given, self.length - before, caches, caches)
        return outputs, trace

    def advance(self, fed: Sequence[Array]) -> list[Any]:
        """The caches as arrays, which take over from those that were fed: of one sequence the newest may be changed."""
        for (ref, _), array in zip(self._last, fed, strict=False):
            if ref() is array:
                array.flags.writeable = False
        found = self.arrays([True] * len(fed))
        self._last = [(weakref.ref(a), a.shape) for a in found]
        return found

    def arrays(self, wanted: Sequence[bool]) -> list[Any]:
        """The caches as arrays, None for those that are not wanted."""
        held = list(self._values.values())
        if len(self._shown) != len(held) or not all(map(GrowableHostArrays.shows, self._shown, held)):
            self._shown = [GrowableHostArrays(c) for c in held]
        self._mirrors.update([s for s, is_wanted in zip(self._shown, wanted, strict=True) if is_wanted])
        return [s.array() if is_wanted else None for s, is_wanted in zip(self._shown, wanted, strict=True)]
