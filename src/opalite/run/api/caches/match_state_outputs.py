"""Which outputs of a model are the state that its inputs take in the next run, found by names and types."""

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
"""Words that say much, and words that say little: those count in names of what is state by another word alone."""
_STATE = re.compile(r"(^|[._])(h|c|hx|cx|hidden|cell)($|[._])|state|cache|memory|lstm|gru|rnn|buffer")
_OF_TIME = ("past", "seq", "total", "time", "len", "cache")
_CROSS = ("encoder", "cross")


@dataclass(frozen=True)
class StatePair:
    """A piece of state: the input `past` takes what the output `present` gave.

    time: the axis along which it grows by a run's tokens; None where its size stays. batch: that of the sequences; None
    where the model has no such. is_cross: of attention to an encoder's output, whose length tells nothing of the
    tokens so far.
    """

    past: str
    present: str
    time: int | None
    batch: int | None
    is_cross: bool


def find_pairs(
    inputs: Sequence[NodeArg], outputs: Sequence[NodeArg], told: Mapping[str, str] | None = None
) -> list[StatePair]:
    """The pairs of a model, in the order of its inputs; those `told`, output by input, or those that names show.

    By names: past_key_values.N.key and present.N.key, past_N and present_N, cache_k and cache_k_out, state and stateN,
    h0 and hn, and the like, of equal types. OptionError for names that are not the model's, and where there are none.
    """
    given = {a.name: a for a in outputs}
    if told is not None:
        known = {a.name: a for a in inputs}
        for past, present in told.items():
            if past not in known:
                raise OptionError(f"no input is named {past!r}; the model's inputs are {', '.join(known)}")
            if present not in given:
                raise OptionError(f"no output is named {present!r}; the model's outputs are {', '.join(given)}")
            if reason := _misfit(known[past], given[present]):
                raise OptionError(f"the output '{present}' cannot be the next '{past}': {reason}")
        return [_pair(a, given[told[a.name]]) for a in inputs if a.name in told]
    free = dict(given)
    found: list[StatePair] = []
    for a in inputs:
        keys = _keys(a.name, _BEFORE, _IN)
        for b in free.values():
            if b.name != a.name and not keys.isdisjoint(_keys(b.name, _AFTER, _OUT)) and not _misfit(a, b):
                found.append(_pair(a, b))
                del free[b.name]
                break
    if not found:
        raise OptionError(
            "no input and output look like state, such as 'past_key_values.0.key' and 'present.0.key'; tell which are: "
            f"session.state({{input: output}}), with inputs {', '.join(a.name for a in inputs)} and outputs "
            f"{', '.join(given)}"
        )
    return found


def _keys(name: str, strong: re.Pattern[str], weak: re.Pattern[str]) -> set[str]:
    """What a name is called without the words that tell before from after."""
    bare = strong.sub("", name, 1)
    found = {bare} if bare != name or _STATE.search(name.lower()) else set()
    cut = weak.sub("", name, 1)
    if cut != name and _STATE.search(cut.lower()):
        found.add(cut)
    return found - {""}


def _misfit(past: NodeArg, present: NodeArg) -> str:
    """Why one cannot be the other's next; '' if it may."""
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


def _pair(past: NodeArg, present: NodeArg) -> StatePair:
    is_cross = any(word in past.name.lower() for word in _CROSS)
    open_axes = [i for i, d in enumerate(past.shape) if not isinstance(d, int)]
    batch = next((i for i in open_axes if "batch" in str(past.shape[i]).lower()), None)
    if batch is None:
        batch = 0 if 0 in open_axes or len(past.shape) > 3 else None
    grown = [i for i in open_axes if i != batch and (past.shape[i] is None or past.shape[i] != present.shape[i])]
    named = [i for i in grown if any(word in str(past.shape[i]).lower() for word in _OF_TIME)]
    return StatePair(past.name, present.name, next(iter(named or grown), None), batch, is_cross)
