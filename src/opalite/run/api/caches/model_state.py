"""State: the KV caches and recurrent states that a model carries from one run to the next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....cl.memory.growable_device_tensor import GrowableDeviceTensor
from ....errors import InputError, InputTypeError, OptionError
from ....ir.constants.int8_rows import CACHES
from ...execute.strategies.launch_parameter_buffer import MAX_IN_FLIGHT
from ...model.kv_cache.kv_cache_runs import MultiStepRuns, NoKVCacheRunError, NotQueuedAheadError
from ...model.model_inputs_outputs import NodeArg
from ..values.io_binding import BoundOutput
from ..values.ort_value import OrtValue
from .check_masks import check_mask
from .empty_state import EmptyState
from .kv_cache import KVCaches, as_array, constant, cut, kv_cache_model
from .match_state_outputs import StatePair, find_pairs
from .state_file import read_state, write_state
from .state_sequences import check_indices, copy_sequence, empty_values, reordered, with_length

if TYPE_CHECKING:
    from ..session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
BRANCH = "use_cache_branch"
"""The input of merged decoders that chooses the branch with a cache."""
_NONE: frozenset[str] = frozenset()


class State:
    """The state of one sequence, or of a batch of sequences: `session.state()`.

    state = session.state()
    logits = state.run({"input_ids": prompt, "attention_mask": mask})[0]
    logits = state.run({"input_ids": token, "attention_mask": longer_mask})[0]

    A run takes the inputs that are not state, and returns the outputs that are not state. States of one session are
    independent and share its programs and weights. A State is not thread-safe; different threads may use different
    States of one session.

    pairs: the state's inputs and outputs. input_names, output_names: the inputs and outputs of `run`. copies: the
    reason why each run copies the caches, '' if runs append in place. ran_multi_step: whether the last `chain` queued
    several runs without waiting for each.
    """

    def __init__(
        self,
        session: InferenceSession,
        pairs: Mapping[str, str] | None = None,
        *,
        max_length: int | None = None,
        reserve: int = 256,
        cache: str = "model",
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """See InferenceSession.state."""
        if cache not in CACHES:
            raise OptionError(f"cache is one of {', '.join(CACHES)}, got {cache!r}")
        if reserve < 1 or (max_length is not None and max_length < 1):
            raise OptionError(f"max_length and reserve are counts of positions from 1 on, got {max_length}, {reserve}")
        self._session = session
        self._rt = session.runtime
        needed = session.get_inputs()
        own = kv_cache_model(session) and session.get_overridable_initializers()  # a bundle has them compiled in
        self._inputs: dict[str, NodeArg] = {a.name: a for a in (*needed, *(own or ()))}
        self.pairs = find_pairs(list(self._inputs.values()), session.get_outputs(), pairs)
        self._state_inputs, given = {p.past for p in self.pairs}, {p.present for p in self.pairs}
        self.input_names = [a.name for a in needed if a.name not in self._state_inputs]
        self.output_names = [a.name for a in session.get_outputs() if a.name not in given]
        self._output_indices = {a.name: i for i, a in enumerate(session.get_outputs())}
        self._growing_pair = next((p for p in self.pairs if p.time is not None and not p.is_cross), None)
        self._is_int8 = cache == "int8"
        self._caches = KVCaches(session, self.pairs, reserve, as_int8=self._is_int8)
        self.copies = ""
        self.ran_multi_step = False
        # On devices that share memory, queued runs read the caller's arrays, which may change.
        self._may_multi_step = not session.runtime.shares_memory
        self._set_copies(self._caches.refusal)
        self._empty = EmptyState(session, self.pairs, sizes or {}, max_length)
        self._values: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        self._bound: dict[str, BoundOutput] = {}
        self._runs = 0

    def run(
        self, feeds: Mapping[str, Any], output_names: Sequence[str] | None = None, *, on_device: bool = False
    ) -> list[Any]:
        """Run the model and advance the state; returns the outputs `output_names`, all of `self.output_names` if None.

        feeds: arrays by input name, without the state; `use_cache_branch` of merged decoders may be left out.
        on_device: return OrtValues, in device memory if the caches are there. The next run may overwrite them.
        Raises InputError for inputs that the model does not accept, and leaves the state unchanged.
        """
        wanted = self._check_names(output_names)
        bound = {name: self._output(name) for name in wanted} if on_device else {}
        unread = _NONE if output_names is None else frozenset(self.output_names).difference(wanted)
        found = self._advance(feeds, bound, unread)
        return [OrtValue(found[name]) if on_device else found[name] for name in wanted]

    def _complete_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """`feeds` with the constant inputs of `hold`. Raises InputError for inputs that are state."""
        self._session.check_not_lost("this state", self._rt)
        if not isinstance(feeds, Mapping):
            raise InputTypeError(f"inputs are a dict of arrays by name, got {type(feeds).__name__}")
        for name in feeds:
            if name in self._state_inputs:
                raise InputError(f"input '{name}' is state, which this object feeds: leave it out, or load() it")
        given = {**self._held, **feeds}
        for name, value in given.items():
            if type(value) is OrtValue:
                given[name] = value.value
        if self._growing_pair is not None:
            check_mask(given, len(self))
        if BRANCH in self._inputs and BRANCH not in given:
            given[BRANCH] = np.array([self._runs > 0])
        return given

    def chain(
        self, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str], output_names: Sequence[str] | None = None
    ) -> list[list[Any]]:
        """Call `run` on each of `feeds`; from the second run on, inputs are outputs of the run before (multi-step).

        links: by input, the output that it takes, of the same type and shape; later feeds lack these inputs. A decoder
        generates so, with a token as the next run's input (docs/state.md):

        state.chain([{"input_ids": token, **masks[0]}, *masks[1:]], {"input_ids": "token"}, ["token"])

        On devices with memory of their own, runs of equal shapes are queued before the previous run has ended;
        `ran_multi_step` says whether any was. Raises InputError as `run` does; the runs before the error remain in the
        state.
        """
        wanted = self._check_names(output_names)
        self._check_links(links)
        self.ran_multi_step = False
        kept = {*wanted, *links.values()}
        unread = frozenset(self.output_names).difference(kept)
        found: list[dict[str, Any]] = []
        carried: dict[str, Any] = {}
        while len(found) < len(feeds):
            rest = [{**f, **carried} for f in feeds[len(found) :][: MAX_IN_FLIGHT if self._may_multi_step else 1]]
            if not found:  # later runs take these inputs from outputs; the values only have the right types
                first = {n: rest[0][n] for n in links if n in rest[0]}
                rest = [rest[0], *({**f, **first} for f in rest[1:])]
            several = self._run_multi_step(rest, links, unread) or [self._advance(rest[0], {}, unread)]
            found += [{n: outputs[n] for n in kept} for outputs in several]
            carried = {n: found[-1][output] for n, output in links.items()}
        return [[outputs[n] for n in wanted] for outputs in found]

    def _check_links(self, links: Mapping[str, str]) -> None:
        for name, output in links.items():
            if name not in self._inputs or name in self._state_inputs:
                raise InputError(f"no input besides the state is named {name!r}; there are {self.input_names}")
            if output not in self.output_names:
                raise InputError(f"no output besides the state is named {output!r}; there are {self.output_names}")

    def _advance(
        self, feeds: Mapping[str, Any], bound: Mapping[str, BoundOutput], unread: frozenset[str]
    ) -> dict[str, Any]:
        """Outputs by name of one run, besides those that are `unread`."""
        given = self._complete_feeds(feeds)
        past = self._values or self._empty.values(given)
        found = self._run_in_place(given, past, bound, unread) or self._run_copying(given, past, unread)
        self._runs += 1
        return found

    def _run_multi_step(
        self, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str], unread: frozenset[str]
    ) -> list[dict[str, Any]]:
        """Outputs by name of the runs that were queued together; none if the next run must be waited for."""
        if not (self._may_multi_step and self._values) or self.copies or not self._caches.runs.has_fast_path:
            return []
        given = [self._complete_feeds(f) for f in feeds]
        caches, others = self._caches.reserve(given[0], self._values)
        if others:
            return []
        before = len(self)
        runs = self._caches.runs
        runs.caches = caches
        try:
            found = self._session._execute(
                given[0], self._session._request(unread=unread), MultiStepRuns(runs, given, links)
            )
        except NotQueuedAheadError:
            return []
        self.ran_multi_step = True
        count = len(found[0])
        if not self._caches.match(caches, self._values):
            self._values = dict(caches)
        for fed in given[:count]:
            self._caches.record_growth(fed, (len(self) - before) // count, caches, self._values)
        self._runs += count
        return [{n: outputs[self._output_indices[n]] for n in self.output_names} for outputs in found[0]]

    def _output(self, name: str) -> BoundOutput:
        """The device memory of an output."""
        if name not in self._bound:
            info = next(a for a in self._session.get_outputs() if a.name == name)
            self._bound[name] = BoundOutput(name, info.type, self._session.runtime)
        return self._bound[name]

    def _run_in_place(
        self,
        given: Mapping[str, Any],
        past: Mapping[str, Any],
        bound: Mapping[str, BoundOutput],
        unread: frozenset[str],
    ) -> dict[str, Any] | None:
        """Outputs by name of a run that appends to the caches in place; None if the model's caches must be copied."""
        if self.copies:
            return None
        try:
            caches, others = self._caches.reserve(given, past)
            before = len(self)
            runs = self._caches.runs
            runs.caches = caches
            targets = {n: b.target for n, b in bound.items()}
            request = self._session._request(targets=targets, unread=unread)
            outputs = self._session._execute({**given, **others}, request, runs)[0]
        except NoKVCacheRunError as e:
            if self._caches.drop_fixed_size():
                return self._run_in_place(given, {n: as_array(v) for n, v in past.items()}, bound, unread)
            self._set_copies(str(e))
            return None
        places = self._output_indices
        if others or not self._caches.match(caches, self._values):
            rest = (p for p in self.pairs if p.past in others)
            now = {p.past: self._next(p, others[p.past], outputs[places[p.present]]) for p in rest}
            self._values = {**caches, **now}
        self._caches.record_growth(given, len(self) - before, caches, self._values)
        return {name: outputs[places[name]] for name in self.output_names}

    def _set_copies(self, why: str) -> None:
        """Copy caches from now on if there is a reason `why`. Raises OptionError if cache='int8' was requested."""
        if why and self._is_int8:
            raise OptionError(f'cache="int8" needs runs that append to caches in place, but {why}: leave it out')
        self.copies = why

    def _run_copying(self, given: Mapping[str, Any], past: Mapping[str, Any], unread: frozenset[str]) -> dict[str, Any]:
        """Outputs by name of a run whose state outputs are fed back as arrays."""
        past = {n: as_array(v) for n, v in past.items()}
        names = [*(n for n in self.output_names if n not in unread), *(p.present for p in self.pairs)]
        found = dict(zip(names, self._session.run(names, {**given, **past}), strict=True))
        self._values = {p.past: self._next(p, past[p.past], found[p.present]) for p in self.pairs}
        return found

    def _check_names(self, names: Sequence[str] | None) -> list[str]:
        if names is None:
            return self.output_names
        if isinstance(names, str):
            raise InputTypeError(f"output names are a list such as {self.output_names[:1]}, got {names!r}")
        for name in names:
            if name not in self.output_names:
                raise InputError(f"no output besides the state is named {name!r}; there are {self.output_names}")
        return list(names)

    @staticmethod
    def _next(pair: StatePair, before: Any, after: Any) -> Any:
        """The next value of a state. A branch of the model that does not compute a cache returns an empty one."""
        kept = before if after.size == 0 and before.size else after
        return constant(kept) if pair.is_cross and isinstance(kept, np.ndarray) else kept

    def hold(self, values: Mapping[str, Any]) -> None:
        """Feed these inputs in every run unless `feeds` has them: the output of an encoder, for example.

        Raises InputError for unknown inputs and for inputs that are state.
        """
        for name, value in values.items():
            if name not in self._inputs:
                raise InputError(f"no input is named {name!r}; the model's inputs are {', '.join(self._inputs)}")
            if name in self._state_inputs:
                raise InputError(
                    f"input '{name}' is state: load() it, or name the state's pairs in session.state({{...}})"
                )
            self._held[name] = constant(value) if isinstance(value, np.ndarray) else value

    def __len__(self) -> int:
        """The number of positions in growing caches; without growing caches, the number of runs."""
        pair = self._growing_pair
        if pair is None:
            return self._runs
        assert pair.time is not None
        value = self._values.get(pair.past)
        if isinstance(value, GrowableDeviceTensor):
            return value.length
        return 0 if value is None else int(value.shape[pair.time])

    def __bool__(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        """The bytes of the state."""
        return sum(v.nbytes for v in self._values.values())

    def arrays(self) -> dict[str, Array]:
        """Copies of the values by input name, none before the first run."""
        return {name: np.array(as_array(value)) for name, value in self._values.items()}

    def reset(self, *, keep_memory: bool = True) -> None:
        """Return to the state before the first run. The inputs of `hold` remain, and the memory for the next one."""
        self._caches.release(self._values if keep_memory else {})
        self._values, self._runs = {}, 0

    def truncate(self, length: int) -> None:
        """Drop all but the first `length` positions. Raises OptionError for states that are not caches."""
        if self._growing_pair is not None and not 0 <= length <= len(self):
            raise InputError(f"the state holds {len(self)} positions, so it cannot be cut to {length}")
        if length == len(self):
            return
        if stuck := [p.past for p in self.pairs if p.time is None and not p.is_cross]:
            raise OptionError(
                f"the state '{stuck[0]}' does not grow with time, so it cannot be truncated: fork() before"
            )
        if length == 0:
            self.reset()
            return
        self._caches.drop_prepared()
        for p in self.pairs:
            if not p.is_cross and p.time is not None:
                self._values[p.past] = cut(self._values[p.past], p.time, length)

    def fork(self, indices: Sequence[int] | None = None) -> State:
        """An independent copy of the state; with `indices`, of these sequences of the batch, in this order."""
        other = State.__new__(State)
        other.__dict__.update(self.__dict__)
        other._held, other._bound = dict(self._held), {}
        other._caches = self._caches.fork()
        if indices is None:
            other._values = {n: v.copy() if isinstance(v, GrowableDeviceTensor) else v for n, v in self._values.items()}
        else:
            other._values = dict(self._values)
            other.reorder(indices)
        return other

    def reorder(self, indices: Sequence[int]) -> int:
        """Select the sequences `indices` of the batch, as a beam search does; return the bytes copied in caches.

        Indices may repeat, in any number. Of as many as there are, those that stay at their places are not copied.
        """
        picked = check_indices(self._values, self.pairs, indices)
        self._caches.drop_prepared()
        self._values, nbytes = reordered(self._values, self.pairs, picked)
        return nbytes

    def allocate(self, like: State, count: int, length: int) -> None:
        """Become `count` sequences of zeros, of the kinds of `like`, which `copy_sequence` fills.

        OptionError where sequences have no memory of their own.
        """
        self._values = empty_values(like._values, self.pairs, count, length, self._caches.capacity_of(length))
        self._runs = like._runs
        self._caches.drop_prepared()

    def copy_sequence(self, source: State, entries: tuple[int, int], first: int, start: int, count: int) -> None:
        """Copy a sequence of `source`; arguments as in state_sequences.copy_sequence."""
        self._caches.drop_prepared()
        copy_sequence(self._values, source._values, self.pairs, entries, first, start, count)

    def set_length(self, length: int) -> None:
        """Cut or extend the caches of all sequences to `length` positions, in larger memory if they do not fit."""
        self._caches.drop_prepared()
        self._values = with_length(self._values, self.pairs, length, self._caches.capacity_of(length))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values to an .npz file, arrays by input name."""
        write_state(path, self._runs, self.arrays())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read values that `save` has written. Raises InputError for values of another model."""
        runs, values = read_state(path)
        self.set_values(values)
        self._runs = runs

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Set all values of the state by input name; an empty mapping resets the state."""
        wanted = [p.past for p in self.pairs]
        if not values:
            self.reset()
            return
        missing, unknown = [n for n in wanted if n not in values], [n for n in values if n not in wanted]
        if missing or unknown:
            what = f"lack '{missing[0]}'" if missing else f"hold '{unknown[0]}', which is none"
            raise InputError(f"the values {what}; the state is {', '.join(wanted)}")
        self._values = {n: self._checked(self._inputs[n], values[n]) for n in wanted}
        self._runs = max(self._runs, 1)

    @staticmethod
    def _checked(info: NodeArg, value: Any) -> Array:
        array = np.asarray(value)
        assert info.dtype is not None
        fits = array.dtype == info.dtype.np and (info.any_rank or array.ndim == len(info.shape))
        if not fits or any(isinstance(d, int) and d != n for d, n in zip(info.shape, array.shape, strict=False)):
            expected = f"{info.dtype.np.name}{info.shape}"
            raise InputError(f"the state '{info.name}' is {expected}, got {array.dtype.name}{list(array.shape)}")
        return array
