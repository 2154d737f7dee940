"""DecodeFastPath: decode steps that repeat the last step with other sizes and skip dispatch by the model."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy as shallow_copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....ir.symbols import compile_numbers
from ....plan.kv_cache_spec import KVCacheSpec
from ....plan.template.dynamic_parameters import DynamicParameters
from ...execute.dynamic_shape_runs import DynamicShapeRuns
from ...execute.memory.io_transfer import Bindings, Target
from ...execute.run_trace import RunRecord, RunTrace
from ...execute.strategies.inflight_runs import InflightRuns
from ..executable_cache import Compiled
from ..model_run import is_finite
from ..run_request import targets_by_number

if TYPE_CHECKING:
    from .kv_cache_runs import ExecutionPath

Array = np.ndarray[Any, Any]
_log = logging.getLogger(__name__)
_KEPT = 4  # dynamic-shape runs of one executable
_HEADROOM = 4  # a program serves this many times the reserved positions


def find_dynamic_runs(
    compiled: Compiled, sizes: Sequence[int], steps: Sequence[int], grown: int, length: int, capacity: int
) -> DynamicShapeRuns | None:
    """Runs of `compiled` at sizes that change by `steps` in each run, with caches that grow by `grown` from `length`.

    None if each length needs a program of its own. capacity: number of the size that says how many positions are
    reserved. If it may change too, the program serves _HEADROOM times as many, so that growth needs no other program.
    """
    for found in compiled.dynamic:
        if found.dynamic.at(sizes) is not None:
            return found
    if compiled.template is None:
        return None
    for headroom in (_HEADROOM, 1):
        held = headroom * sizes[capacity]
        further = (held - 1 - length) // grown
        if further < 1:
            continue
        largest = [n + further * step for n, step in zip(sizes, steps, strict=True)]
        largest[capacity] = held
        moves = {i for i, step in enumerate(steps) if step} | ({capacity} if headroom > 1 else set())
        try:
            made = DynamicShapeRuns(compiled.executable, DynamicParameters(compiled.template, largest, moves))
        except ValueError as e:
            _log.info("a new length is a new program: %s", e)
            continue
        compiled.dynamic[:] = [made, *compiled.dynamic[: _KEPT - 1]]
        return made
    return None


class DecodeFastPath:
    """Decode steps of one program with dynamic shapes: `serves` checks the feeds, then `run` runs them."""

    def __init__(self, path: ExecutionPath, runs: DynamicShapeRuns, sizes: Sequence[int]) -> None:
        """path: of the last run, at `sizes`."""
        record = self._record = path.record
        self._path, self._compiled, self._runs = path, path.compiled, runs
        self._last = list(sizes)
        known = [(n, a.dtype, a.shape, np.array(a.values, a.dtype).tobytes()) for n, a in record.contents.items()]
        self._fixed = [*known, *((n, *spec) for n, spec in record.fixed.items())]
        self._inputs = [
            (n, np.dtype(a.dtype), len(a.shape), list(_numbered(a.numbers)), _fixed(a.shape, a.numbers))
            for n, a in record.tensors.items()
            if n not in record.caches
        ]
        self._caches = {n: list(_numbered(record.tensors[n].numbers)) for n in record.caches}
        self._capacity = record.capacity
        texts = dict.fromkeys(record.lengths.values())
        self._lengths = compile_numbers(record.open_sizes, (), list(texts))
        self._names = [[n for n, own in record.lengths.items() if own == text] for text in texts]  # by length
        self._known: Mapping[str, GrowableDeviceTensor] = {}  # caches that fitted last
        self._held: list[tuple[GrowableDeviceTensor, Any]] = []  # of `_known`, with the tensor of each at that time
        self._lists: list[list[GrowableDeviceTensor]] = []  # of `_known`, grouped by length
        self._state: Bindings | None = None  # buffers of these caches by slot, once they are bound
        inputs, outputs = ({pair[i] for pair in record.input_output_aliases} for i in (0, 1))
        self._read = [n for i, n in enumerate(record.inputs) if i not in inputs]
        ports = list(zip(runs.dynamic.program.reserved, record.input_output_aliases, strict=True))
        self._slots = [(port.slot, record.inputs[i]) for port, (i, _) in ports]
        self._stored = {record.inputs[i]: port.dtype.np for port, (i, _) in ports}
        made = [o for o in range(len(runs.dynamic.program.outputs) + len(outputs)) if o not in outputs]
        self._places = {o: k for k, o in enumerate(made)}
        sources = list(enumerate(record.outputs.values()))
        self._computed = [(i, self._places[s]) for i, s in sources if isinstance(s, int) and s in self._places]
        self._others = [(i, s) for i, s in sources if not isinstance(s, int)]
        self._sizes: tuple[int, ...] = ()
        self._unread: tuple[Collection[str], list[int]] | None = None  # unread outputs, and their numbers

    def copy(self) -> DecodeFastPath:
        """A copy for another state, which may belong to another thread: records of runs are replaced, never changed."""
        other = shallow_copy(self)
        other._known, other._held, other._lists = {}, [], []  # it holds none of this state's memory
        return other

    def serves(self, feeds: Mapping[str, Any], caches: Mapping[str, GrowableDeviceTensor]) -> bool:
        """Whether only sizes have changed, and consistently; called before each `run`."""
        path = self._path
        if len(feeds) != len(self._inputs) + len(self._fixed) or not path.executables.has(path.key, path.compiled):
            return False
        for name, dtype, shape, contents in self._fixed:
            value = feeds.get(name)
            if type(value) is not np.ndarray or (value.dtype.name, value.shape) != (dtype, shape):
                return False
            if value.tobytes() != contents:
                return False
        sizes: list[Any] = [None] * len(self._last)
        for name, kind, rank, numbered, fixed in self._inputs:
            value = feeds.get(name)
            if type(value) is not np.ndarray or value.dtype != kind or value.ndim != rank:
                return False
            shape = value.shape
            for axis, number in numbered:
                if sizes[number] is None:
                    sizes[number] = shape[axis]
                elif sizes[number] != shape[axis]:
                    return False
            for axis, size in fixed:
                if shape[axis] != size:
                    return False
        if not (self._fit_again(caches, sizes) or self._fit(caches, sizes)):
            return False
        self._sizes = tuple(sizes)
        return None not in sizes

    def _look_ahead(self, sizes: Sequence[int]) -> None:
        """Compute in advance the values that follow from the sizes of the next step."""
        following = tuple(2 * now - before for now, before in zip(sizes, self._last, strict=True))
        self._last = list(sizes)
        if self._path.given is not None:
            with suppress(Exception):  # there may be no next step; its run reports errors
                self._path.given.at(following)

    def _fit_again(self, caches: Mapping[str, GrowableDeviceTensor], sizes: list[Any]) -> bool:
        """As `_fit`, for the caches that fitted last.

        Their lengths and memory may have changed since: a state may be truncated, or converted by another program.
        """
        if caches is not self._known:
            return False
        held = self._held
        length = held[0][0].length
        for cache, tensor in held:
            if cache.length != length or cache.tensor is not tensor:
                return False
        name, cache = next(iter(caches.items()))
        return self._add_sizes(name, cache, sizes)

    def _fit(self, caches: Mapping[str, GrowableDeviceTensor], sizes: list[Any]) -> bool:
        """Whether the caches fit the program; adds their sizes to `sizes`."""
        if len(caches) != len(self._caches):
            return False
        values = list(caches.values())
        first = values[0]
        if any(c.length != first.length or c.capacity != first.capacity for c in values):
            return False
        for name, cache in caches.items():
            if name not in self._caches or cache.stored != self._stored[name]:
                return False
            if not self._add_sizes(name, cache, sizes):
                return False
        self._known, self._held = caches, [(c, c.tensor) for c in values]
        self._lists = [[caches[n] for n in names] for names in self._names]
        self._state = None
        return True

    def _add_sizes(self, name: str, cache: GrowableDeviceTensor, sizes: list[Any]) -> bool:
        """Whether the sizes of a cache agree with `sizes`; adds those that are missing there."""
        shape = cache.shape
        for axis, number in self._caches[name]:
            size = shape[axis]
            if sizes[number] is None:
                sizes[number] = size
            elif sizes[number] != size:
                return False
        sizes[self._capacity] = cache.capacity
        return True

    def run(
        self,
        feeds: Mapping[str, Any],
        caches: Mapping[str, GrowableDeviceTensor],
        targets: Mapping[str, Target],
        unread: Collection[str] = (),
    ) -> tuple[list[Any], RunTrace] | None:
        """The model's outputs in order, None for caches, which have grown; and the trace. None if they do not fit.

        The caller holds the run lock. targets: outputs that should stay on the device. unread: outputs nobody reads.
        """
        sizes, executable = self._sizes, self._compiled.executable
        values = self._runs.dynamic.at(sizes)
        if values is None:
            return None
        given = self._given(sizes)
        arrays = [given[n] if n in given else feeds[n] for n in self._read]
        wanted = kept_numbers(self._record, targets) if targets else {}
        kept = {self._places[o]: target for o, target in wanted.items() if o in self._places}
        with executable.entered() as is_there:
            if not is_there:
                return None
            if executable.state is not self._state:  # another state has run, or these caches are new
                executable.bind_state({slot: caches[n].tensor.staging for slot, n in self._slots})
                self._state = executable.state
            look_ahead = partial(self._look_ahead, sizes)
            found, trace = self._runs.run(values, arrays, kept, look_ahead, self._unread_numbers(unread))
        if self._compiled.may_overflow and not is_finite(found):
            return None  # lengths are as before; the next run overwrites what was appended
        self._record_run(trace)
        self._grow(self._lengths(*sizes) or ())
        return self._outputs(found, feeds, given), trace

    def run_in_flight(
        self,
        feeds: Sequence[Mapping[str, Any]],
        caches: Mapping[str, GrowableDeviceTensor],
        links: Mapping[str, str],
        unread: Collection[str],
    ) -> tuple[list[list[Any]], RunTrace] | None:
        """Outputs and trace of as many runs on `feeds` as can be queued without waiting; None for none.

        links: by input, the output of the run before. Needs no `serves` first. None leaves the caches as before.
        """
        executable = self._compiled.executable
        linked = self._link(links)
        if linked is None or not self.serves(feeds[0], caches):
            return None
        before = [c.length for c in caches.values()]
        with executable.entered() as is_there:
            if not is_there or executable.state is not self._state:
                return None
            inflight = self._runs.inflight(linked, self._unread_numbers(unread))
            if inflight is None:
                return None
            found = None
            try:
                given = self._add(inflight, feeds, caches)
                found = inflight.finish() if given else None
                if found is not None and self._compiled.may_overflow and not all(map(is_finite, found[0])):
                    found = None
            except BaseException:
                inflight.drop()
                raise
            finally:
                if found is None:  # the next run overwrites what was appended
                    for cache, length in zip(caches.values(), before, strict=True):
                        cache.length = length
        if found is None:
            return None
        self._record_run(found[1])
        each = zip(found[0], feeds, given, strict=False)
        return [self._outputs(outputs, fed, own) for outputs, fed, own in each], found[1]

    def _add(
        self, inflight: InflightRuns, feeds: Sequence[Mapping[str, Any]], caches: Mapping[str, GrowableDeviceTensor]
    ) -> list[Mapping[str, Any]]:
        """Queue as many runs as possible and grow the caches; the values of each that follow from its sizes."""
        made: list[Mapping[str, Any]] = []
        for number, fed in enumerate(feeds):
            if number and not self.serves(fed, caches):
                break
            sizes = self._sizes
            values, lengths = self._runs.dynamic.at(sizes), self._lengths(*sizes)
            if values is None or lengths is None:
                break
            if any(n >= c.capacity for n, grown in zip(lengths, self._lists, strict=True) for c in grown[:1]):
                break
            given = self._given(sizes)
            if not inflight.add(values, [given[n] if n in given else fed[n] for n in self._read]):
                break
            made.append(given)
            self._grow(lengths)
            self._look_ahead(sizes)
        return made

    def _link(self, links: Mapping[str, str]) -> dict[int, int] | None:
        """The program's output number for each linked input number; None if it lacks a linked input or output."""
        found = {}
        for name, output in links.items():
            source = self._record.outputs.get(output)
            if name not in self._read or not isinstance(source, int) or source not in self._places:
                return None
            found[self._read.index(name)] = self._places[source]
        return found

    def _unread_numbers(self, unread: Collection[str]) -> list[int]:
        """Numbers of the program's outputs that nobody reads."""
        if not unread:
            return []
        if self._unread is None or self._unread[0] != unread:
            sources: dict[int, bool] = {}  # whether it is read
            for name, source in self._record.outputs.items():
                if isinstance(source, int) and source in self._places:
                    sources[source] = sources.get(source, False) or name not in unread
            self._unread = unread, [self._places[s] for s, is_read in sources.items() if not is_read]
        return self._unread[1]

    def _given(self, sizes: tuple[int, ...]) -> Mapping[str, Any]:
        return {} if self._path.given is None else self._path.given.at(sizes)

    def _grow(self, lengths: Sequence[int]) -> None:
        for grown, length in zip(self._lists, lengths, strict=True):
            for cache in grown:
                cache.length = length

    def _record_run(self, trace: RunTrace) -> None:
        trace.run_record = RunRecord()
        trace.run_record.add(self._compiled.executable)
        trace.run_record.note(*self._compiled.notes, *self._compiled.inherited_notes)

    def _outputs(self, found: Sequence[Any], feeds: Mapping[str, Any], given: Mapping[str, Any]) -> list[Any]:
        """The model's outputs, from those of the program."""
        outputs: list[Any] = [None] * len(self._record.outputs)
        for i, place in self._computed:
            outputs[i] = found[place]
        for i, source in self._others:
            outputs[i] = output_of(source, {}, feeds, given)
        return outputs


def kept_numbers(record: KVCacheSpec, targets: Mapping[str, Target]) -> dict[int, Target]:
    """Targets by number of the graph's output, for outputs all of whose names are in `targets`."""
    return targets_by_number([(n, s) for n, s in record.outputs.items() if isinstance(s, int)], targets)


def output_of(
    source: int | str | Array, found: Mapping[int, Any], feeds: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    """An output of the model by its source in a record; None for a cache. found: the graph's outputs by number."""
    if isinstance(source, int):
        return found.get(source)
    if isinstance(source, str):
        value = given[source] if source in given else feeds[source]
        is_constant = value.base is None and not value.flags.writeable
        return value if is_constant else value.copy()
    return source.copy()


def _numbered(axes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    return ((i, k) for i, k in enumerate(axes) if k is not None)


def _fixed(shape: Sequence[int], axes: Sequence[int | None]) -> list[tuple[int, int]]:
    return [(i, d) for i, (d, k) in enumerate(zip(shape, axes, strict=True)) if k is None]
