"""find_pairs: pairs of an input and the output that holds its next value, matched by names and types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....errors import OptionError
from ...model.model_inputs_outputs import NodeArg

_BEFORE = re.compile(
    r"^(past_key_values|past_key_value|past_kv|past|previous|prev|old)[._]?|[._](past|previous|prev|old)$"
)
_AFTER = re.compile(
    r"^(present_key_values|present_key_value|present_kv|present|new_past|next|new|updated)[._]?|[._](present|next|new|updated)$"
)
_IN = re.compile(r"^(input|in)[._]|[._](input|in)$|0$")
_OUT = re.compile(r"^(output|out)[._]|[._](output|out)$|[1nN]$")
"""_BEFORE and _AFTER mark state by themselves. _IN and _OUT count only in names that match _STATE."""
_STATE = re.compile(r"(^|[._])(h|c|hx|cx|hidden|cell)($|[._])|state|cache|memory|lstm|gru|rnn|buffer")
_OF_TIME = ("past", "seq", "total", "time", "len", "cache")
_CROSS = ("encoder", "cross")


@dataclass(frozen=True)
class StatePair:
    """One state of a model: the input `past` takes the value of the output `present` of the run before.

    time: the axis along which it grows by the tokens of a run; None for a fixed size. batch: the axis of sequences, if
    any. is_cross: whether the state is a cache of cross-attention, whose length is not the number of tokens.
    """

    past: str
    present: str
    time: int | None
    batch: int | None
    is_cross: bool


def find_pairs(
    inputs: Sequence[NodeArg], outputs: Sequence[NodeArg], pairs: Mapping[str, str] | None = None
) -> list[StatePair]:
    """The state pairs of a model, in the order of its inputs. pairs: output by input; None matches by names.

    Matching names have equal types, such as past_key_values.N.key and present.N.key, past_N and present_N, cache_k and
    cache_k_out, state and stateN, h0 and hn. Raises OptionError for unknown names, and if there are no pairs.
    """
    given = {a.name: a for a in outputs}
    if pairs is not None:
        known = {a.name: a for a in inputs}
        for past, present in pairs.items():
            if past not in known:
                raise OptionError(f"no input is named {past!r}; the model's inputs are {', '.join(known)}")
            if present not in given:
                raise OptionError(f"no output is named {present!r}; the model's outputs are {', '.join(given)}")
            if reason := _misfit(known[past], given[present]):
                raise OptionError(f"the output '{present}' cannot be the next '{past}': {reason}")
        return [_pair(a, given[pairs[a.name]]) for a in inputs if a.name in pairs]
    found = match_names(inputs, outputs)
    if not found:
        raise OptionError(
            "no input and output look like state, such as 'past_key_values.0.key' and 'present.0.key'; name them: "
            f"session.state({{input: output}}), with inputs {', '.join(a.name for a in inputs)} and outputs "
            f"{', '.join(given)}"
        )
    return found


def match_names(inputs: Sequence[NodeArg], outputs: Sequence[NodeArg]) -> list[StatePair]:
    """The state pairs by names, none if there are none."""
    free = {b.name: (b, _keys(b.name, _AFTER, _OUT)) for b in outputs}
    found: list[StatePair] = []
    for a in inputs:
        keys = _keys(a.name, _BEFORE, _IN)
        for b, own in free.values() if keys else ():
            if b.name != a.name and not keys.isdisjoint(own) and not _misfit(a, b):
                found.append(_pair(a, b))
                del free[b.name]
                break
    return found


def _keys(name: str, strong: re.Pattern[str], weak: re.Pattern[str]) -> set[str]:
    """A name without the words that mark inputs or outputs; none if it does not look like state."""
    bare = strong.sub("", name, 1)
    found = {bare} if bare != name or _STATE.search(name.lower()) else set()
    cut = weak.sub("", name, 1)
    if cut != name and _STATE.search(cut.lower()):
        found.add(cut)
    return found - {""}


def _misfit(past: NodeArg, present: NodeArg) -> str:
    """The reason why `present` cannot be the next value of `past`, '' if it can."""
    if past.dtype is None or past.dtype is not present.dtype:
        return f"they are {past.type} and {present.type}"
    if past.any_rank or present.any_rank:
        return ""
    if len(past.shape) != len(present.shape):
        return f"their shapes are {past.shape} and {present.shape}"
    same = all(
        a == b for a, b in zip(past.shape, present.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
    )
    return "" if same else f"their shapes are {past.shape} and {present.shape}"


def _is_cache(past: NodeArg) -> bool:
    """Whether names show that a state grows."""
    names = f"{past.name} {past.shape}".lower()
    return _BEFORE.search(past.name) is not None or any(word in names for word in _OF_TIME)


def _pair(past: NodeArg, present: NodeArg) -> StatePair:
    is_cross = any(word in past.name.lower() for word in _CROSS)
    open_axes = [i for i, d in enumerate(past.shape) if not isinstance(d, int)]
    batch = next((i for i in open_axes if "batch" in str(past.shape[i]).lower()), None)
    if batch is None and open_axes == [1] and len(past.shape) == 3 and not _is_cache(past):
        batch = 1  # layers, sequences, hidden values of recurrent layers
    if batch is None:
        batch = 0 if 0 in open_axes or len(past.shape) > 3 else None
    grown = [i for i in open_axes if i != batch and (past.shape[i] is None or past.shape[i] != present.shape[i])]
    named = [i for i in grown if any(word in str(past.shape[i]).lower() for word in _OF_TIME)]
    return StatePair(past.name, present.name, next(iter(named or grown), None), batch, is_cross)
